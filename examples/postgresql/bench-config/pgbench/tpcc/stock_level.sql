-- How many of the items in the latest twenty orders of a district are scarce.
\set district random(1, 10)
\set least random(10, 20)
SELECT count(DISTINCT s_i_id) FROM district
    JOIN order_line ON ol_w_id = 1 AND ol_d_id = d_id AND ol_o_id BETWEEN d_next_o_id - 20 AND d_next_o_id - 1
    JOIN stock ON s_w_id = 1 AND s_i_id = ol_i_id
    WHERE d_w_id = 1 AND d_id = :district AND s_quantity < :least;
