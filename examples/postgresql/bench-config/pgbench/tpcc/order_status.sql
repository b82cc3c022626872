-- The latest order of a customer, found by last name.
\set district random(1, 10)
\set name random(0, 99)
BEGIN READ ONLY;
SELECT c_id, c_balance, c_last FROM customer
    WHERE c_w_id = 1 AND c_d_id = :district AND c_last = 'NAME' || lpad(:name::text, 4, '0') ORDER BY c_id;
SELECT ol_i_id, ol_quantity, ol_amount FROM order_line
    WHERE ol_w_id = 1 AND ol_d_id = :district AND ol_o_id = (
        SELECT o_id FROM orders JOIN customer ON c_w_id = o_w_id AND c_d_id = o_d_id AND c_id = o_c_id
        WHERE o_w_id = 1 AND o_d_id = :district AND c_last = 'NAME' || lpad(:name::text, 4, '0')
        ORDER BY o_id DESC LIMIT 1);
COMMIT;
