-- Statements around the preparation of a workload's data, which sysbench's own scripts leave out.

sysbench.cmdline.commands = {
   -- Makes the database that the data goes into.
   create = {
      function()
         local name = assert(os.getenv("PERFQUILT_DATABASE"))
         sysbench.sql.driver():connect():query("CREATE DATABASE IF NOT EXISTS " .. name)
      end,
   },
   -- Gives every table statistics, so that plans do not depend on when the server makes them.
   analyze = {
      function()
         local connection = sysbench.sql.driver():connect()
         local tables = connection:query("SHOW TABLES")
         local names = {}
         for _ = 1, tables.nrows do
            names[#names + 1] = tables:fetch_row()[1]
         end
         for _, name in ipairs(names) do
            connection:query("ANALYZE TABLE `" .. name .. "`")
         end
      end,
   },
}
