-- The oldest waiting order of every district is delivered, and its customer charged.
\set carrier random(1, 10)
BEGIN;
WITH oldest AS (
    SELECT no_d_id, min(no_o_id) AS no_o_id FROM new_order WHERE no_w_id = 1 GROUP BY no_d_id
), taken AS (
    DELETE FROM new_order USING oldest
    WHERE new_order.no_w_id = 1 AND new_order.no_d_id = oldest.no_d_id AND new_order.no_o_id = oldest.no_o_id
    RETURNING new_order.no_d_id, new_order.no_o_id
), delivered AS (
    UPDATE orders SET o_carrier = :carrier FROM taken WHERE o_w_id = 1 AND o_d_id = no_d_id AND o_id = no_o_id
    RETURNING o_d_id, o_id, o_c_id
), amounts AS (
    SELECT o_d_id, o_c_id, sum(ol_amount) AS amount FROM delivered
        JOIN order_line ON ol_w_id = 1 AND ol_d_id = o_d_id AND ol_o_id = o_id
    GROUP BY o_d_id, o_c_id
)
UPDATE customer SET c_balance = c_balance + amount FROM amounts
    WHERE c_w_id = 1 AND c_d_id = o_d_id AND c_id = o_c_id;
COMMIT;
