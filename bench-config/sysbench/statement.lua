-- One statement a transaction, on the tables of sysbench's oltp_… scripts.
--
-- Placeholders in --statement: {table} is a random table, {id} a random row, {last} the row
-- --range-size rows further on ({id} - 1 + range-size), {id2}, {id3} … more random rows.
-- --setup runs when the client connects, statements separated by semicolons: SET on every
-- connection, everything else once a server.

require("oltp_common")

sysbench.cmdline.options.statement = { "The statement", "SELECT c FROM {table} WHERE id = {id}" }
sysbench.cmdline.options.setup = { "Statements run when connecting", "" }

local pieces

-- The statement cut at its placeholders: texts and names in turn.
local function compile(text)
   local list = {}
   local position = 1
   for before, name, after in text:gmatch("()%{(%w+)%}()") do
      list[#list + 1] = text:sub(position, before - 1)
      list[#list + 1] = name
      position = after
   end
   list[#list + 1] = text:sub(position)
   return list
end

function prepare_statements()
   pieces = compile(sysbench.opt.statement)
end

function thread_init()
   drv = sysbench.sql.driver()
   con = drv:connect()
   stmt = {}
   for table_number = 1, sysbench.opt.tables do
      stmt[table_number] = {}
   end
   prepare_statements()
   for statement in sysbench.opt.setup:gmatch("[^;]+") do
      local word = statement:match("%a+")
      if word and (sysbench.tid == 0 or word:upper() == "SET") then
         con:query(statement)
      end
   end
end

function event()
   local values = {}
   local span = sysbench.opt.range_size
   values.table = "sbtest" .. sysbench.rand.uniform(1, sysbench.opt.tables)
   local function row()
      return sysbench.rand.uniform(1, math.max(1, sysbench.opt.table_size - span + 1))
   end
   values.id = row()
   values.last = values.id + span - 1
   local text = {}
   for index, piece in ipairs(pieces) do
      if index % 2 == 0 then
         local value = values[piece]
         if value == nil and piece:match("^id%d+$") then
            value = row()
            values[piece] = value
         end
         text[index] = assert(value, "unknown placeholder {" .. piece .. "}")
      else
         text[index] = piece
      end
   end
   con:query(table.concat(text))
end
