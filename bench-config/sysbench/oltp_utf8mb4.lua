-- Prepares the tables of sysbench's oltp_… scripts in utf8mb4, today's usual character set.

mysql_table_options = "DEFAULT CHARACTER SET utf8mb4"

require("oltp_common")
