-- A payment of a customer, entered in warehouse, district and history.
\set district random(1, 10)
\set customer random_gaussian(1, 300, 3.0)
\set amount random(1, 5000)
BEGIN;
UPDATE warehouse SET w_ytd = w_ytd + :amount WHERE w_id = 1;
UPDATE district SET d_ytd = d_ytd + :amount WHERE d_w_id = 1 AND d_id = :district;
SELECT w_name, d_name FROM warehouse, district WHERE w_id = 1 AND d_w_id = 1 AND d_id = :district;
UPDATE customer SET c_balance = c_balance - :amount, c_payments = c_payments + 1
    WHERE c_w_id = 1 AND c_d_id = :district AND c_id = :customer;
INSERT INTO history (h_w_id, h_d_id, h_c_id, h_date, h_amount) VALUES (1, :district, :customer, now(), :amount);
COMMIT;
