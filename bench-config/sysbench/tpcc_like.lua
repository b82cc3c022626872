-- Five transactions of a wholesaler in the proportions of TPC-C: new orders, payments, the state of an
-- order, deliveries, the level of the stock. A tenth of a warehouse, without the benchmark's keying
-- and thinking times, so its figures are not TPC-C's.

sysbench.cmdline.options = {
   customers = { "Customers of each of the ten districts", 300 },
   items = { "Items", 10000 },
   engine = { "Storage engine", "innodb" },
}

local DISTRICTS = 10
local LINES = 10

local function uniform(from, to)
   return sysbench.rand.uniform(from, to)
end

-- Rows are inserted some hundred at a time.
local function fill(connection, insert, first, last, row)
   connection:bulk_insert_init(insert)
   for number = first, last do
      connection:bulk_insert_next(row(number))
   end
   connection:bulk_insert_done()
end

local function create(connection, name, columns)
   connection:query("CREATE TABLE " .. name .. " (" .. columns .. ") ENGINE=" .. sysbench.opt.engine)
end

function prepare()
   local connection = sysbench.sql.driver():connect()
   create(connection, "warehouse",
      "w_id INT PRIMARY KEY, w_name VARCHAR(10), w_tax DECIMAL(4,4), w_ytd DECIMAL(12,2)")
   create(connection, "district",
      "d_w_id INT, d_id INT, d_name VARCHAR(16), d_tax DECIMAL(4,4), d_ytd DECIMAL(12,2), d_next_o_id INT, " ..
      "PRIMARY KEY (d_w_id, d_id)")
   create(connection, "customer",
      "c_w_id INT, c_d_id INT, c_id INT, c_last VARCHAR(16), c_credit CHAR(2), c_discount DECIMAL(4,4), " ..
      "c_balance DECIMAL(12,2), c_payments INT, c_data VARCHAR(500), PRIMARY KEY (c_w_id, c_d_id, c_id), " ..
      "KEY (c_w_id, c_d_id, c_last)")
   create(connection, "history",
      "h_w_id INT, h_d_id INT, h_c_id INT, h_date DATETIME, h_amount DECIMAL(6,2)")
   create(connection, "item", "i_id INT PRIMARY KEY, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50)")
   create(connection, "stock",
      "s_w_id INT, s_i_id INT, s_quantity INT, s_ytd INT, s_order_cnt INT, s_dist CHAR(24), s_data VARCHAR(50), " ..
      "PRIMARY KEY (s_w_id, s_i_id)")
   create(connection, "orders",
      "o_w_id INT, o_d_id INT, o_id INT, o_c_id INT, o_entry DATETIME, o_carrier INT, o_lines INT, " ..
      "PRIMARY KEY (o_w_id, o_d_id, o_id), KEY (o_w_id, o_d_id, o_c_id, o_id)")
   create(connection, "new_order",
      "no_w_id INT, no_d_id INT, no_o_id INT, PRIMARY KEY (no_w_id, no_d_id, no_o_id)")
   create(connection, "order_line",
      "ol_w_id INT, ol_d_id INT, ol_o_id INT, ol_number INT, ol_i_id INT, ol_quantity INT, ol_amount DECIMAL(6,2), " ..
      "ol_dist CHAR(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)")

   local customers, items = sysbench.opt.customers, sysbench.opt.items
   connection:query("INSERT INTO warehouse VALUES (1, 'Main', 0.1, 0)")
   fill(connection, "INSERT INTO district VALUES", 1, DISTRICTS, function(d)
      return string.format("(1, %d, 'District %d', 0.1, 0, %d)", d, d, customers + 1)
   end)
   local data = string.rep("customer data ", 20)
   fill(connection, "INSERT INTO customer VALUES", 0, DISTRICTS * customers - 1, function(n)
      local c = n % customers + 1
      return string.format("(1, %d, %d, 'NAME%04d', '%s', %.4f, 0, 0, '%s')", math.floor(n / customers) + 1, c,
         c % 100, c % 10 == 0 and "BC" or "GC", c % 5000 / 10000, data)
   end)
   fill(connection, "INSERT INTO item VALUES", 1, items, function(i)
      return string.format("(%d, 'Item %d', %.2f, 'data of item %d')", i, i, 1 + i % 10000 / 100, i)
   end)
   fill(connection, "INSERT INTO stock VALUES", 1, items, function(i)
      return string.format("(1, %d, %d, 0, 0, 'district information %03d', '%s')", i, 10 + i % 91, i % 1000,
         string.rep("stock", 8))
   end)
   fill(connection, "INSERT INTO orders VALUES", 0, DISTRICTS * customers - 1, function(n)
      local o = n % customers + 1
      return string.format("(1, %d, %d, %d, NOW(), %s, %d)", math.floor(n / customers) + 1, o, o * 7 % customers + 1,
         o <= customers * 0.7 and o % 10 + 1 or "NULL", LINES)
   end)
   connection:query("INSERT INTO new_order SELECT o_w_id, o_d_id, o_id FROM orders WHERE o_carrier IS NULL")
   fill(connection, "INSERT INTO order_line VALUES", 0, DISTRICTS * customers * LINES - 1, function(n)
      local line, order = n % LINES + 1, math.floor(n / LINES)
      local o, d = order % customers + 1, math.floor(order / customers) + 1
      return string.format("(1, %d, %d, %d, %d, 5, 50, 'district information %03d')", d, o, line,
         (o * 31 + line * 97 + d * 13) % items + 1, line)
   end)
end

function cleanup()
   local connection = sysbench.sql.driver():connect()
   for _, name in ipairs({ "order_line", "new_order", "orders", "stock", "item", "history", "customer", "district",
      "warehouse" }) do
      connection:query("DROP TABLE IF EXISTS " .. name)
   end
end

function thread_init()
   con = sysbench.sql.driver():connect()
end

function thread_done()
   con:disconnect()
end

local function query(text, ...)
   return con:query(string.format(text, ...))
end

-- The first column of the first row, or nil.
local function value(text, ...)
   local result = query(text, ...)
   local row = result.nrows > 0 and result:fetch_row() or {}
   return row[1]
end

local function new_order()
   local d, c = uniform(1, DISTRICTS), uniform(1, sysbench.opt.customers)
   con:query("BEGIN")
   query("SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse WHERE w_id = 1 AND c_w_id = 1 " ..
      "AND c_d_id = %d AND c_id = %d", d, c)
   local o = value("SELECT d_next_o_id FROM district WHERE d_w_id = 1 AND d_id = %d FOR UPDATE", d)
   query("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = %d", d)
   query("INSERT INTO orders VALUES (1, %d, %s, %d, NOW(), NULL, %d)", d, o, c, LINES)
   query("INSERT INTO new_order VALUES (1, %d, %s)", d, o)
   -- In ascending order, so that two clients cannot wait for each other.
   local item = uniform(1, sysbench.opt.items - LINES * 90)
   for line = 1, LINES do
      item = item + uniform(1, 90)
      local quantity = uniform(1, 10)
      local price = value("SELECT i_price FROM item WHERE i_id = %d", item)
      query("SELECT s_quantity, s_dist, s_data FROM stock WHERE s_w_id = 1 AND s_i_id = %d FOR UPDATE", item)
      query("UPDATE stock SET s_quantity = IF(s_quantity >= %d, s_quantity - %d, s_quantity + 91 - %d), " ..
         "s_ytd = s_ytd + %d, s_order_cnt = s_order_cnt + 1 WHERE s_w_id = 1 AND s_i_id = %d",
         quantity + 10, quantity, quantity, quantity, item)
      query("INSERT INTO order_line VALUES (1, %d, %s, %d, %d, %d, %s * %d, 'district information')",
         d, o, line, item, quantity, price, quantity)
   end
   con:query("COMMIT")
end

local function payment()
   local d, c, amount = uniform(1, DISTRICTS), uniform(1, sysbench.opt.customers), uniform(1, 5000)
   con:query("BEGIN")
   query("UPDATE warehouse SET w_ytd = w_ytd + %d WHERE w_id = 1", amount)
   query("UPDATE district SET d_ytd = d_ytd + %d WHERE d_w_id = 1 AND d_id = %d", amount, d)
   query("SELECT w_name, d_name FROM warehouse, district WHERE w_id = 1 AND d_w_id = 1 AND d_id = %d", d)
   query("UPDATE customer SET c_balance = c_balance - %d, c_payments = c_payments + 1 " ..
      "WHERE c_w_id = 1 AND c_d_id = %d AND c_id = %d", amount, d, c)
   query("INSERT INTO history VALUES (1, %d, %d, NOW(), %d)", d, c, amount)
   con:query("COMMIT")
end

local function order_status()
   local d, name = uniform(1, DISTRICTS), uniform(0, 99)
   con:query("BEGIN")
   local c = value("SELECT c_id FROM customer WHERE c_w_id = 1 AND c_d_id = %d AND c_last = 'NAME%04d' ORDER BY c_id",
      d, name)
   if c then
      local o = value("SELECT o_id FROM orders WHERE o_w_id = 1 AND o_d_id = %d AND o_c_id = %s " ..
         "ORDER BY o_id DESC LIMIT 1", d, c)
      if o then
         query("SELECT ol_i_id, ol_quantity, ol_amount FROM order_line WHERE ol_w_id = 1 AND ol_d_id = %d AND ol_o_id = %s",
            d, o)
      end
   end
   con:query("COMMIT")
end

local function delivery()
   local carrier = uniform(1, 10)
   con:query("BEGIN")
   for d = 1, DISTRICTS do
      local o = value("SELECT no_o_id FROM new_order WHERE no_w_id = 1 AND no_d_id = %d ORDER BY no_o_id LIMIT 1 " ..
         "FOR UPDATE", d)
      if o then
         query("DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = %d AND no_o_id = %s", d, o)
         local c = value("SELECT o_c_id FROM orders WHERE o_w_id = 1 AND o_d_id = %d AND o_id = %s", d, o)
         query("UPDATE orders SET o_carrier = %d WHERE o_w_id = 1 AND o_d_id = %d AND o_id = %s", carrier, d, o)
         local amount = value("SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = 1 AND ol_d_id = %d AND ol_o_id = %s",
            d, o)
         query("UPDATE customer SET c_balance = c_balance + %s WHERE c_w_id = 1 AND c_d_id = %d AND c_id = %s",
            amount, d, c)
      end
   end
   con:query("COMMIT")
end

local function stock_level()
   local d, least = uniform(1, DISTRICTS), uniform(10, 20)
   local o = value("SELECT d_next_o_id FROM district WHERE d_w_id = 1 AND d_id = %d", d)
   query("SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = 1 AND s_i_id = ol_i_id " ..
      "WHERE ol_w_id = 1 AND ol_d_id = %d AND ol_o_id BETWEEN %s - 20 AND %s - 1 AND s_quantity < %d", d, o, o, least)
end

function event()
   local drawn = uniform(1, 100)
   if drawn <= 45 then
      new_order()
   elseif drawn <= 88 then
      payment()
   elseif drawn <= 92 then
      order_status()
   elseif drawn <= 96 then
      delivery()
   else
      stock_level()
   end
end
