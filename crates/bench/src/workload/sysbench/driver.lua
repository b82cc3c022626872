-- Runs one sysbench script on several servers at once, alternating every millisecond or so.
--
-- The script (sysbench's own or the workspace's) is loaded once a server, each copy in an
-- environment of its own whose connections all go to that server. One round is a random
-- permutation of the servers with a short, timed slice on each; within a round every server gets
-- the same transactions, because the generator is set back to the same state before each slice.
-- What disturbs the machine then disturbs all servers of a round alike and cancels in their ratios.
--
-- Settings come in environment variables (PERFQUILT_*), so that the script's own options stay as
-- they are; see `interleave.rs` and `serve.rs`, which write them and read the result.

local ffi = require("ffi")

ffi.cdef[[
typedef struct { long tv_sec; long tv_nsec; } pq_timespec;
int clock_gettime(int clock, pq_timespec *time);
int clock_getcpuclockid(int pid, int *clock);
int usleep(unsigned int microseconds);
int setenv(const char *name, const char *value, int overwrite);
void *calloc(size_t count, size_t size);
int pthread_barrier_init(void *barrier, const void *attributes, unsigned int count);
int pthread_barrier_wait(void *barrier);
int pthread_mutex_init(void *mutex, const void *attributes);
int pthread_mutex_lock(void *mutex);
int pthread_mutex_unlock(void *mutex);
void _exit(int status);
extern uint64_t sb_rng_state[2];
// What the threads of one run share. The two pthread objects are larger than on any known platform.
typedef struct {
   uint64_t barrier[16];
   uint64_t mutex[16];
   uint32_t per_slice;
   uint32_t slices;
   uint32_t lead;
   uint32_t stop;
   uint32_t spoiled;
   uint32_t unused;
   double started[1024];
   double ended[1024];
} pq_shared;
]]

local C = ffi.C
local MONOTONIC = 1
local MAX_THREADS = 1024
local HUGE = math.huge

local function setting(name, default)
   local value = os.getenv("PERFQUILT_" .. name)
   if value == nil then
      return (assert(default, "PERFQUILT_" .. name .. " is not set"))
   end
   return value
end

local function number(name, default)
   return (assert(tonumber((setting(name, default))), "PERFQUILT_" .. name .. " is no number"))
end

local function words(text)
   local list = {}
   for word in text:gmatch("[^,]+") do
      list[#list + 1] = word
   end
   return list
end

local script = setting("SCRIPT")
local out = setting("OUT")
local mode = setting("MODE", "interleave")
local sockets = words(setting("SOCKETS"))
local servers = #sockets
local threads -- known once sysbench has read its options

-- A compiled copy of a script may be faster than another copy of the same script, which would look
-- like a difference between the servers; the interpreter treats all copies alike.
jit.off()

-- ---------------------------------------------------------------------------------------------
-- Failing: other threads may be waiting for this one, so the whole process ends at once
-- ---------------------------------------------------------------------------------------------

local function fail(server, message)
   if type(message) == "table" then
      message = tostring(message.sql_errmsg or message.message or "unknown error")
   end
   -- Several threads may fail at the same time; any one's report will do, but it must be whole.
   local part = out .. "/error.part" .. tostring(sysbench.tid)
   local file = io.open(part, "w")
   if file then
      file:write(tostring(server), "\n", tostring(message), "\n")
      file:close()
      os.rename(part, out .. "/error")
   end
   io.stdout:flush()
   C._exit(3)
end

-- ---------------------------------------------------------------------------------------------
-- Random numbers: sysbench keeps one generator a thread, 128 bits of state
-- ---------------------------------------------------------------------------------------------

local rng -- the running thread's state

local function find_generator()
   -- Resolved in the thread that uses it: the symbol is thread-local.
   local found, state = pcall(function() return C.sb_rng_state end)
   if not found then
      fail(0, "this sysbench does not export its random number generator (sb_rng_state)")
   end
   rng = state
end

-- Two generators beside the script's: one all threads agree on (order of servers), one of the
-- thread's own (what the next round's transactions are).
local function generator(seed)
   local state = ffi.new("uint64_t[2]")
   -- splitmix64, the usual way to fill a larger state from one number
   local x = ffi.cast("uint64_t", seed)
   for i = 0, 1 do
      x = x + 0x9e3779b97f4a7c15ULL
      local z = x
      z = bit.bxor(z, bit.rshift(z, 30)) * 0xbf58476d1ce4e5b9ULL
      z = bit.bxor(z, bit.rshift(z, 27)) * 0x94d049bb133111ebULL
      state[i] = bit.bxor(z, bit.rshift(z, 31))
   end
   return state
end

local function swap_in(state)
   rng[0], rng[1] = state[0], state[1]
end

local function swap_out(state)
   state[0], state[1] = rng[0], rng[1]
end

local function shuffle(order, state)
   swap_in(state)
   for i = servers, 2, -1 do
      local j = 1 + tonumber(C.sb_rand_uniform_uint64() % ffi.cast("uint64_t", i))
      order[i], order[j] = order[j], order[i]
   end
   swap_out(state)
end

-- ---------------------------------------------------------------------------------------------
-- One copy of the script a server
-- ---------------------------------------------------------------------------------------------

local shared -- pq_shared, the same for all threads
local connected = {} -- the servers that the script has connected to

local function unique_numbers(tid)
   -- sysbench's counter is shared by all threads and servers; a copy counts for itself, so that
   -- the same transaction draws the same number on every server. A second attempt on the same
   -- servers begins behind everything that the first one can have drawn.
   local count = number("ATTEMPT", "0") * 1e7
   return function()
      local index = count * threads + tid
      count = count + 1
      -- A permutation of 0..2^32-1: odd multiplier.
      return tonumber((ffi.cast("uint64_t", index) * 2654435761ULL) % 4294967296ULL)
   end
end

local function connect_to(server, real_driver)
   -- Connections of the process go round robin over the list; the lock keeps the other threads
   -- out until this one has the connection it wants.
   connected[server] = true
   C.pthread_mutex_lock(shared.mutex)
   local connection
   local seen = {}
   for _ = 1, 2 * servers do
      local candidate = real_driver:connect()
      local socket = candidate:query_row("SELECT @@socket")
      if servers == 1 or socket == sockets[server] then
         connection = candidate
         break
      end
      seen[#seen + 1] = tostring(socket)
      candidate:disconnect()
   end
   C.pthread_mutex_unlock(shared.mutex)
   if connection == nil then
      fail(server, "no connection to " .. sockets[server] .. "; reached " .. table.concat(seen, ", "))
   end
   return connection
end

-- Reads every index of every table once, so that the first timed transactions find all pages in
-- memory.
local function read_everything(server)
   local connection = connect_to(server, sysbench.sql.driver())
   local indexes = connection:query(
      "SELECT DISTINCT table_name, index_name FROM information_schema.statistics"
         .. " WHERE table_schema = DATABASE()")
   local names = {}
   for _ = 1, indexes.nrows do
      names[#names + 1] = indexes:fetch_row()
   end
   for _, row in ipairs(names) do
      connection:query(string.format(
         "SELECT COUNT(*) FROM `%s` FORCE INDEX (`%s`)", row[1], row[2]))
   end
   connection:disconnect()
end

local function copy_of_script(server)
   local env = {}
   local private = {
      rand = setmetatable({}, { __index = sysbench.rand }),
      hooks = setmetatable({}, { __index = sysbench.hooks }),
      sql = setmetatable({}, { __index = sysbench.sql }),
   }
   function private.sql.driver(name)
      local real = sysbench.sql.driver(name)
      local wrapped = {}
      function wrapped.connect(_)
         return connect_to(server, real)
      end
      function wrapped.name(_)
         return real:name()
      end
      return setmetatable(wrapped, { __index = function(_, key) return real[key] end })
   end
   -- The command line (options, commands) stays the one table sysbench itself reads.
   env.sysbench = setmetatable(private, { __index = sysbench })
   -- math.random is not sysbench's generator; on top of it, it is repeatable too.
   env.math = setmetatable({
      random = function(low, high)
         local value = C.sb_rand_uniform_double()
         if low == nil then
            return value
         end
         if high == nil then
            low, high = 1, low
         end
         return low + math.floor(value * (high - low + 1))
      end,
      randomseed = function() end,
   }, { __index = math })
   env._G = env

   local function load_into(path)
      local chunk, problem = loadfile(path)
      if not chunk then
         error(problem, 0)
      end
      return setfenv(chunk, env)
   end
   local loaded = {}
   function env.require(name)
      if loaded[name] ~= nil then
         return loaded[name]
      end
      local path = package.loaded[name] == nil and package.searchpath(name, package.path)
      if not path then
         return require(name)
      end
      local result = load_into(path)(name)
      loaded[name] = result == nil and true or result
      return loaded[name]
   end
   function env.dofile(path)
      return load_into(path)()
   end
   function env.loadfile(path)
      local done, chunk = pcall(load_into, path)
      if done then
         return chunk
      end
      return nil, chunk
   end
   setmetatable(env, { __index = _G })
   load_into(script)()
   -- What the script does not define itself would be found in the driver's own globals.
   if type(rawget(env, "event")) ~= "function" then
      error("the script has no event function", 0)
   end
   return env
end

package.path = script:match("^(.*/)[^/]*$") .. "?.lua;" .. package.path

local copies = {}
for server = 1, servers do
   copies[server] = copy_of_script(server)
end

-- ---------------------------------------------------------------------------------------------
-- Clocks
-- ---------------------------------------------------------------------------------------------

local instant = ffi.new("pq_timespec")

local function now(clock)
   C.clock_gettime(clock, instant)
   -- Exact in a double: uptime and processor time in nanoseconds stay far below 2^53.
   return tonumber(instant.tv_sec) * 1e9 + tonumber(instant.tv_nsec)
end

-- The processor-time clock of each server's process.
local cpu_clocks
do
   local pids = words(setting("PIDS", ""))
   if #pids == servers then
      cpu_clocks = {}
      local id = ffi.new("int[1]")
      for server, pid in ipairs(pids) do
         if C.clock_getcpuclockid(tonumber(pid), id) ~= 0 then
            cpu_clocks = nil
            break
         end
         cpu_clocks[server] = id[0]
      end
   end
end

-- ---------------------------------------------------------------------------------------------
-- Life of a thread
-- ---------------------------------------------------------------------------------------------

function init()
   -- In the main thread, before the others start. The address travels by the environment, the one
   -- thing all Lua states of the process can read.
   local block = ffi.cast("pq_shared *", C.calloc(1, ffi.sizeof("pq_shared")))
   C.pthread_barrier_init(block.barrier, nil, sysbench.opt.threads)
   C.pthread_mutex_init(block.mutex, nil)
   local address = tonumber(ffi.cast("uintptr_t", block))
   C.setenv("PERFQUILT_SHARED", string.format("%.0f", address), 1)
   threads = sysbench.opt.threads
   if threads > MAX_THREADS then
      fail(0, "more than " .. MAX_THREADS .. " threads")
   end
end

function thread_init(tid)
   threads = sysbench.opt.threads
   local address = tonumber(os.getenv("PERFQUILT_SHARED"))
   shared = ffi.cast("pq_shared *", ffi.cast("uintptr_t", address))
   find_generator()
   -- All connections first, in the order of the list, so that each goes to its server at once: a server
   -- that has served other connections before its own is not in the state of one that has not.
   for server, env in ipairs(copies) do
      env.sysbench.rand.unique = unique_numbers(tid)
      local begin = rawget(env, "thread_init")
      if begin then
         local done, problem = pcall(begin, tid)
         if not done then
            fail(server, problem)
         end
      end
   end
   if tid == 0 then
      for server = 1, servers do
         if connected[server] then
            local done, problem = pcall(read_everything, server)
            if not done then
               fail(server, problem)
            end
         end
      end
   end
end

function thread_done(tid)
   for _, env in ipairs(copies) do
      local finish = rawget(env, "thread_done")
      if finish then
         -- A server that was killed in the meantime changes nothing about what was measured.
         pcall(finish, tid)
      end
   end
end

-- sysbench runs a script only if it has this; thread_run below never calls it.
function event()
end

local function wait_for_others()
   if threads > 1 then
      C.pthread_barrier_wait(shared.barrier)
   end
end

-- `count` transactions on one server. A deadlock or a duplicate key starts the transaction again,
-- as sysbench does; returns whether that happened.
local function transactions(server, tid, count)
   local env = copies[server]
   local run = rawget(env, "event")
   local left = count
   local spoiled = false
   local function work()
      while left > 0 do
         if run(tid) then
            error("the script asked to stop", 0)
         end
         left = left - 1
      end
   end
   while left > 0 do
      local done, problem = pcall(work)
      if not done then
         if type(problem) ~= "table" or problem.errcode ~= sysbench.error.RESTART_EVENT then
            fail(server, problem)
         end
         spoiled = true
         local hook = env.sysbench.hooks.before_restart_event
         if hook then
            hook(problem)
         end
      end
   end
   return spoiled
end

-- A growing array of floats, one row of `servers` numbers a slice.
local function table_of_slices()
   local capacity, rows = 1024, 0
   local values = ffi.new("float[?]", capacity * servers)
   local slices = {}
   -- Room for `count` more rows; made outside the timed part.
   function slices.reserve(count)
      while rows + count > capacity do
         local larger = ffi.new("float[?]", 2 * capacity * servers)
         ffi.copy(larger, values, 4 * capacity * servers)
         values, capacity = larger, 2 * capacity
      end
   end
   -- `row` counts from 0 within the rows not yet kept.
   function slices.set(row, server, value)
      values[(rows + row) * servers + server - 1] = value
   end
   function slices.get(row, server)
      return values[(rows + row) * servers + server - 1]
   end
   function slices.keep(count)
      rows = rows + count
   end
   function slices.rows()
      return rows
   end
   function slices.bytes()
      return ffi.string(values, 4 * rows * servers)
   end
   return slices
end

local function median(list)
   table.sort(list)
   return list[math.floor(#list / 2) + 1]
end

local function write_result(head, ...)
   local file = assert(io.open(out .. "/slices.part", "wb"))
   file:write(head, "\n")
   for _, part in ipairs({ ... }) do
      file:write(part)
   end
   if not file:close() then
      fail(0, "cannot write " .. out .. "/slices.part")
   end
   assert(os.rename(out .. "/slices.part", out .. "/slices"))
end

-- Tells perfquilt that the timed slices begin or end, and waits until it has read what the servers used so
-- far: it then removes the file. Nothing waits where nobody reads (PERFQUILT_ACKNOWLEDGED).
local function announce(name)
   local path = out .. "/" .. name
   assert(io.open(path, "w")):close()
   local file = number("ACKNOWLEDGED", "0") == 1 and io.open(path)
   while file do
      file:close()
      C.usleep(500)
      file = io.open(path)
   end
end

-- Chooses how a server's turn in a round is spent, from the time of one transaction (ns): some
-- transactions that are not timed (they fetch code and data back into the caches that the other
-- servers used in the meantime), then `slices` timed slices of `per_slice` transactions.
local function choose_turn(one)
   -- With several threads a slice is a burst of all of them, which has to be long enough for them to
   -- get into each other's way; with one, it is short enough to be hardly ever interrupted.
   local slice_ns = number("SLICE_MS", threads > 1 and "2" or "0.2") * 1e6
   local turn_ns = number("TURN_MS", "2") * 1e6
   local lead_ns = number("LEAD_MS", "0.3") * 1e6
   local per_slice = number("SLICE_TRANSACTIONS", "0")
   if per_slice == 0 then
      per_slice = math.max(1, math.floor(slice_ns / one + 0.5))
   end
   local slices, lead = 1, 0
   if threads == 1 then
      slices = math.max(1, math.floor(turn_ns / (one * per_slice) + 0.5))
      lead = slices > 1 and math.ceil(lead_ns / one) or 0
   end
   return lead, slices, per_slice
end

local function interleave(tid)
   local leader = tid == 0
   local seed = number("SEED")
   local ordering = generator(seed)
   local own = generator(seed + 1000003 * (tid + 1))
   local round_state = ffi.new("uint64_t[2]")
   local warmup_ns = number("WARMUP_SECONDS", "0.5") * 1e9
   local run_ns = number("SECONDS") * 1e9

   local order = {}
   for server = 1, servers do
      order[server] = server
   end
   local times, cpu_times = table_of_slices(), table_of_slices()
   local recent = {}
   local warm, rounds, spoiled_rounds, warm_rounds = true, 0, 0, 0
   if leader then
      shared.lead, shared.slices, shared.per_slice = 0, 1, 1
   end
   local deadline = now(MONOTONIC) + warmup_ns
   collectgarbage()
   collectgarbage("stop")
   local heap_limit = collectgarbage("count") + 8192

   while true do
      if leader then
         shared.spoiled = 0
         if now(MONOTONIC) >= deadline then
            if warm and warm_rounds >= 5 then
               warm = false
               announce("timed")
               shared.lead, shared.slices, shared.per_slice = choose_turn(median(recent))
               deadline = now(MONOTONIC) + run_ns
            elseif not warm and (rounds >= 1 or now(MONOTONIC) >= deadline + 2 * run_ns) then
               -- Where every round is spoiled, going on for ever would not help.
               shared.stop = 1
            end
         end
         times.reserve(shared.slices)
         cpu_times.reserve(shared.slices)
      end
      wait_for_others()
      if shared.stop == 1 then
         break
      end
      local lead, slices, count = shared.lead, shared.slices, shared.per_slice
      -- All servers of this round draw the same numbers.
      swap_in(own)
      round_state[0] = C.sb_rand_uniform_uint64()
      round_state[1] = C.sb_rand_uniform_uint64()
      swap_out(own)
      shuffle(order, ordering)
      for position = 1, servers do
         local server = order[position]
         local cpu_clock = leader and cpu_clocks and cpu_clocks[server]
         local spoiled = false
         swap_in(round_state)
         wait_for_others()
         if lead > 0 then
            spoiled = transactions(server, tid, lead)
         end
         local cpu_before = cpu_clock and now(cpu_clock)
         for slice = 0, slices - 1 do
            local before = now(MONOTONIC)
            spoiled = transactions(server, tid, count) or spoiled
            local after = now(MONOTONIC)
            if threads > 1 then
               shared.started[tid], shared.ended[tid] = before, after
               wait_for_others()
               if leader then
                  -- The burst of all threads: from the first that began to the last that ended.
                  for other = 0, threads - 1 do
                     before = math.min(before, shared.started[other])
                     after = math.max(after, shared.ended[other])
                  end
               end
            end
            if leader then
               times.set(slice, server, after - before)
            end
            if cpu_clock then
               local cpu_after = now(cpu_clock)
               cpu_times.set(slice, server, cpu_after - cpu_before)
               cpu_before = cpu_after
            end
         end
         if spoiled then
            shared.spoiled = 1
         end
      end
      -- A thread may still have to say that its transactions spoiled the round.
      wait_for_others()
      if leader then
         if warm then
            warm_rounds = warm_rounds + 1
            recent[(warm_rounds - 1) % 101 + 1] = times.get(0, order[1])
         elseif shared.spoiled == 1 then
            spoiled_rounds = spoiled_rounds + 1
         else
            rounds = rounds + 1
            times.keep(slices)
            cpu_times.keep(slices)
         end
      end
      if collectgarbage("count") > heap_limit then
         collectgarbage()
         collectgarbage("stop")
      end
   end
   collectgarbage("restart")
   -- While all threads are connected: a server may end the process or thread of a connection with it.
   if leader then
      announce("measured")
   end
   wait_for_others()
   if leader then
      write_result(
         string.format(
            "perfquilt-slices 1 servers=%d rows=%d rounds=%d slices=%d transactions=%d lead=%d"
               .. " threads=%d spoiled=%d warmup=%d cpu=%d",
            servers, times.rows(), rounds, shared.slices, shared.per_slice * threads, shared.lead,
            threads, spoiled_rounds, warm_rounds, cpu_clocks and 1 or 0),
         times.bytes(), cpu_clocks and cpu_times.bytes() or "")
   end
end

-- ---------------------------------------------------------------------------------------------
-- Serving: transactions on request, for meters that are switched on and off around them
-- ---------------------------------------------------------------------------------------------

local function read_when_there(name, stop)
   while true do
      for _, candidate in ipairs({ name, stop }) do
         local file = io.open(out .. "/" .. candidate)
         if file then
            local text = file:read("*a")
            file:close()
            return candidate, text
         end
      end
      C.usleep(2000)
   end
end

-- Request `i` is a file `request.i` with a number of transactions a thread; `done.i` answers it.
local function serve(tid)
   local seed = number("SEED")
   local request = 0
   while true do
      request = request + 1
      if tid == 0 then
         local name, text = read_when_there("request." .. request, "end")
         shared.per_slice = name == "end" and 0 or assert(tonumber(text), "bad request")
         shared.spoiled = 0
      end
      wait_for_others()
      local count = shared.per_slice
      if count == 0 then
         break
      end
      -- Every request has transactions of its own that depend on nothing before it.
      swap_in(generator(seed + 7919 * request + 1000003 * (tid + 1)))
      if transactions(1, tid, count) then
         shared.spoiled = 1
      end
      wait_for_others()
      if tid == 0 then
         local answer = "done." .. request
         local file = assert(io.open(out .. "/" .. answer .. ".part", "w"))
         file:write(shared.spoiled == 1 and "again" or "once", "\n")
         file:close()
         assert(os.rename(out .. "/" .. answer .. ".part", out .. "/" .. answer))
      end
   end
end

function thread_run(tid)
   local run = mode == "serve" and serve or interleave
   local done, problem = xpcall(function() run(tid) end, function(message)
      return type(message) == "table" and message or debug.traceback(message)
   end)
   if not done then
      fail(0, problem)
   end
end
