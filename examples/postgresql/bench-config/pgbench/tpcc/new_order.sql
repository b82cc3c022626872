-- An order of ten items: its number comes from the district, prices and stock from the items.
\set district random(1, 10)
\set customer random_gaussian(1, 300, 3.0)
\set first random_zipfian(1, 9000, 1.05)
\set step random(1, 90)
BEGIN;
SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse
    WHERE w_id = 1 AND c_w_id = 1 AND c_d_id = :district AND c_id = :customer;
WITH numbered AS (
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = :district
    RETURNING d_next_o_id - 1 AS o_id
), ordered AS (
    INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry, o_lines) SELECT 1, :district, o_id, :customer, now(), 10
    FROM numbered RETURNING o_id
)
INSERT INTO new_order (no_w_id, no_d_id, no_o_id) SELECT 1, :district, o_id FROM ordered;
INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_quantity, ol_amount, ol_dist)
    SELECT 1, :district, d_next_o_id - 1, n, i_id, 1 + n % 10, (1 + n % 10) * i_price, s_dist
    FROM district, generate_series(1, 10) AS n
        JOIN item ON i_id = :first + n * :step
        JOIN stock ON s_w_id = 1 AND s_i_id = i_id
    WHERE d_w_id = 1 AND d_id = :district;
UPDATE stock SET s_quantity = CASE WHEN s_quantity >= 20 THEN s_quantity - 5 ELSE s_quantity + 86 END,
        s_ytd = s_ytd + 5, s_order_cnt = s_order_cnt + 1
    WHERE s_w_id = 1 AND s_i_id = ANY (ARRAY(SELECT :first + n * :step FROM generate_series(1, 10) AS n));
COMMIT;
