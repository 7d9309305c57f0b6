-- The second half of the prelude: answers, and the calls of the host. See prelude.py.

-- Answers -----------------------------------------------------------------------------------------------------------

local ENTRIES_MAX = 64          -- of a list in an answer
local NAME_MAX = 65536          -- bytes of a string in an answer
local NAME_SHORT = 64           -- bytes of a string in an answer that are not counted
local NAME_KEPT = 4096          -- longer than any limit of the host, in bytes
local OUT_BYTES_MAX = 32768     -- bytes of answers after which the host must take them
local UNREAD_MAX = 8            -- messages between two readings of the clock

local hook                                         -- the script's function
local given = {}                                   -- the values that the host has put
local place, last, texts_at = 1, 0, 1              -- indexes: the next message's numbers, the last numbers, its texts
local out, top, out_bytes = {}, 0, 0               -- the values that the host will take
local budget_s, began_s, read_s, unread = 0, nil, 0, 0   -- how long run may take; when it began; the last reading
local problem, chunk

-- Tables are read directly: a script can't create a metatable, and those it can reach run no code on reading. Short
-- names take a fast path, since this runs for every message.

-- Returns whether a long string may leave. A string that exceeds every limit of the host stays here.
local function fits(value)
  local length = #value
  if length > NAME_MAX then error("returned a string longer than 64 KiB", 0) end
  out_bytes = out_bytes + length
  return length <= NAME_KEPT
end

local function number_of(value)
  if type(value) == "number" then return value end
end

-- Stores the names of a list after an index and returns how many; nil if it is not a list of names.
local function put_names(values, at)
  local count = 0
  for key, value in next, values do
    count = count + 1
    if count > ENTRIES_MAX then error("returned a list of more than 64 entries", 0) end
    if key ~= count and type(key) ~= "number" or type(value) ~= "string" then return nil end
    if #value > NAME_SHORT and not fits(value) then return nil end
    out[at + count] = value                        -- holes are no names
  end
  return count
end

-- The same for a path, in order and without holes.
local function put_path(values, at)
  local count = put_names(values, at)
  for i = 1, count or 0 do
    local value = values[i]
    if value == nil then return nil end
    out[at + i] = value
  end
  return count
end

local function no_answer(answer)
  error("returned " .. (answer == nil and "nothing" or "a " .. type(answer)) .. " instead of a table", 0)
end

local function put_enqueue_answer(answer)
  if type(answer) ~= "table" then no_answer(answer) end
  local at, value = top + 1, answer.fairness_key
  local kind = type(value)
  if kind == "string" then
    out[at] = (#value <= NAME_SHORT or fits(value)) and value or nil
  elseif kind == "table" then
    local count = put_path(value, at)
    out[at] = count
    at = at + (count or 0)
  else
    out[at] = nil
  end
  value = answer.throttle_keys
  at = at + 1
  if type(value) == "table" then
    local count = put_names(value, at)
    out[at] = count
    at = at + (count or 0)
  else
    out[at] = nil
  end
  at = at + 1
  value = answer.weight
  out[at] = type(value) == "number" and value or nil
  local cost, priority, cap = answer.cost, answer.priority, answer.cap
  local delay_ms, deadline_ms = answer.delay_ms, answer.deadline_ms
  if cost or priority or cap or delay_ms or deadline_ms then
    out[at + 1] = true
    out[at + 2] = number_of(cost)
    out[at + 3] = type(priority) == "string" and sub(priority, 1, 8) or number_of(priority)
    out[at + 4] = number_of(cap)
    out[at + 5] = number_of(delay_ms)
    out[at + 6] = number_of(deadline_ms)
    top = at + 6
  else
    out[at + 1] = nil
    top = at + 1
  end
end

local function put_failure_answer(answer)
  if type(answer) ~= "table" then no_answer(answer) end
  local action = answer.action
  if action ~= "retry" and action ~= "dlq" then
    if type(action) ~= "string" then action = type(action) end
    error("returned the action '" .. sub(action, 1, 40) .. "': it is 'retry' or 'dlq'", 0)
  end
  out[top + 1] = action == "dlq"
  out[top + 2] = number_of(answer.delay_ms)
  top = top + 2
end

-- A table created with the right size is twice as fast as one that grows.
local shapes = {
  [0] = function() return {} end,
  function(g, p) return { [g[p]] = g[p + 1] } end,
  function(g, p) return { [g[p]] = g[p + 1], [g[p + 2]] = g[p + 3] } end,
  function(g, p) return { [g[p]] = g[p + 1], [g[p + 2]] = g[p + 3], [g[p + 4]] = g[p + 5] } end,
  function(g, p)
    return { [g[p]] = g[p + 1], [g[p + 2]] = g[p + 3], [g[p + 4]] = g[p + 5], [g[p + 6]] = g[p + 7] }
  end,
}

local function headers_at(p, count)
  local shape = shapes[count]
  if shape then return shape(given, p) end
  local headers = shapes[4](given, p)
  for at = p + 8, p + 2 * count - 2, 2 do headers[given[at]] = given[at + 1] end
  return headers
end

local function forget_globals()
  for name in next, environment do environment[name] = nil end
end

local function ask_on_enqueue()
  local count = given[place + 1]
  put_enqueue_answer(hook({
    headers = headers_at(texts_at, count), payload_size = given[place], queue = queue_name,
  }))
  if next(environment) ~= nil then forget_globals() end
  place, texts_at = place + 2, texts_at + 2 * count
  armed = false
end

local function ask_on_failure()
  local count = given[place + 1]
  put_failure_answer(hook({
    headers = headers_at(texts_at + 3, count), id = given[texts_at], attempts = given[place],
    error = given[texts_at + 1], reason = given[texts_at + 2], queue = queue_name,
  }))
  forget_globals()
  place, texts_at = place + 2, texts_at + 3 + 2 * count
  armed = false
end

local ask = hook_name == "on_enqueue" and ask_on_enqueue or ask_on_failure

-- What the host calls -----------------------------------------------------------------------------------------------

-- Two numbers for each message, then the texts of all of them.
local function put(seconds, messages, ...)
  given, out, top, out_bytes, needed, waits, config = { ... }, {}, 0, 0, nil, 0, {}
  place, last, texts_at = 1, 2 * messages, 2 * messages + 1
  budget_s, began_s = seconds, nil
  if is_fine then
    is_fine = false
    sethook(tick, "", COUNT)
  end
end

local function put_config(key, value, exists, is_first)
  forget_globals()
  if is_first then config = {} end
  config[key] = exists and value                   -- false: there is none
end

local function run()
  if began_s == nil then
    began_s = clock()
    read_s, unread, has_looked = began_s, 0, false
  end
  while place <= last do
    if needed == nil then
      if has_looked or unread >= UNREAD_MAX then
        read_s, unread = clock(), 0
        if place > 1 and read_s - began_s >= budget_s then return 4 end
      end
      unread = unread + 1
      looks, deadline, waits, has_looked = 0, read_s + limit_s, 0, false
    else
      looks, needed, waits = LOOKS_FREE, nil, waits + 1
    end
    stopped, armed = nil, true
    local ok, why = pcall(ask)
    if not ok then
      armed = false
      problem = why
      if stopped == "config" then return 1 end
      return 2
    end
    if out_bytes > OUT_BYTES_MAX then return 3 end
  end
  return 0
end

local function take()
  local taken, count = out, top
  out, top, out_bytes = {}, 0, 0
  return unpack(taken, 1, count)
end

local function wanted() return needed, waits end

-- Skips the message that has no answer and returns why: "late", "large", or "error" with a text.
local function fault()
  if hook then
    texts_at = texts_at + 2 * given[place + 1] + (ask == ask_on_failure and 2 or 0)
    place = place + 2
  end
  local why, what = stopped, problem
  stopped, problem = nil, nil
  forget_globals()
  if why == "late" or why == "large" then return why, "" end
  if what == "not enough memory" then return "large", "" end
  if type(what) == "number" then what = tostring(what) end
  if type(what) ~= "string" then return "error", "an error without a text, but of type " .. type(what) end
  return "error", sub(what, 1, 2000)
end

local function begin()
  sethook(tick, "", COUNT)
  local why
  chunk, why = load(given[1], "=line", given[2], environment)
  if not chunk then
    problem = why
    return false
  end
  looks, deadline, stopped, armed = 0, clock() + limit_s, nil, true
  local ok
  ok, problem = pcall(function()
    chunk()
    local found = environment[hook_name]
    if type(found) ~= "function" then error("the script defines no function " .. hook_name, 0) end
    for name, value in next, environment do kept[name] = value end
    forget_globals()
    hook = found
    armed, is_loading = false, false
  end)
  armed = false
  return ok
end

-- The script as Lua has compiled it. Loading that takes no time to speak of; compiling may take milliseconds.
local function compiled() return dump(chunk) end

return begin, put, put_config, run, take, wanted, fault, compiled
