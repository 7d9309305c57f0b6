"""The inside of the sandbox, in Lua: how a script is asked, how it is stopped, how its answer leaves.

Theory of operation. A runtime holds one script and nothing of Python: strings and numbers go in and come out, and no
Python object or callable ever enters. The host talks to it in three steps, because lupa moves arguments and results
outside of Lua's protected mode: a memory limit that is hit there ends the process. So the limit is set only for the
second step, which takes nothing and returns a number:

1. ``put`` lays some messages into a table (no limit: these are the host's own bytes),
2. ``run`` asks the script about one after the other (limits of time and memory),
3. ``take`` hands out the flat answers, and ``fault`` says why the message behind them has none (no limit: no code of
   the script runs).

*Time.* Every 100 instructions a hook looks whether time is up. Reading the clock is dear (a system call), so that a
message has a few looks free, while the heap is small: most scripts end before. What one instruction or one library
call can take is kept small instead: strings, patterns and tables have caps. When a limit is hit ``stopped`` is set, and
``pcall`` passes the error on instead of catching it. A script has no metatables, coroutines or finalisers, so that none
of its code runs while the error is on its way.

*Configuration.* ``fairlane.get`` finds values in a table. When one is missing, the message is given up, the host puts
the value there, and the message is asked about again within the same time limit. A callable in its place could be made
to raise, or to return a string at the brim of the memory limit, which would stop the process with the GIL held.

*State.* Globals that a script sets while it is loaded stay, but can't be changed: an assignment during a call is
forgotten when the call ends. Locals and tables of the script live on, until a limit is hit and the sandbox is renewed.
"""

from __future__ import annotations

from typing import Final

from fairlane.adapters.lua.library import LIBRARY

ALL_ANSWERED: Final = 0
CONFIG_NEEDED: Final = 1
FAULT: Final = 2
ROOM_NEEDED: Final = 3
"""What ``run`` returns. Room is needed when the answers not yet taken have become long."""

TOO_LATE: Final = b"late"
TOO_LARGE: Final = b"large"
"""What ``fault`` returns when a limit was hit."""

_PROTOCOL: Final = r"""
-- Answers -----------------------------------------------------------------------------------------------------------

local ENTRIES_MAX = 64          -- of a list in an answer
local NAME_MAX = 65536          -- bytes of a string in an answer
local NAME_SHORT = 64           -- bytes of a string in an answer that are not counted
local NAME_KEPT = 4096          -- longer than any limit of the host, in bytes
local OUT_BYTES_MAX = 32768     -- of answers kept back before the host is told to take them

local hook                                         -- the script's function
local given = {}                                   -- what the host has put
local place, last, texts_at = 1, 0, 1              -- of the next message's numbers, of the last ones, of its texts
local out, top, out_bytes = {}, 0, 0               -- what the host will take
local problem

-- Tables are read as they are: a script can't make a metatable, and those it can reach run no code on reading. Short
-- names take the short way, for this runs for every message.

-- Tells whether a long string may leave. What is too long for the host in any case stays here.
local function fits(value)
  local length = #value
  if length > NAME_MAX then error("returned a string longer than 64 KiB", 0) end
  out_bytes = out_bytes + length
  return length <= NAME_KEPT
end

local function number_of(value)
  if type(value) == "number" then return value end
end

-- Puts the names of a list behind a place, and returns how many; nil if it is no list of names.
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

-- A table of the right size from the start is twice as fast as one that grows.
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
    headers = headers_at(texts_at + 2, count), id = given[texts_at], attempts = given[place],
    error = given[texts_at + 1], queue = queue_name,
  }))
  forget_globals()
  place, texts_at = place + 2, texts_at + 2 + 2 * count
  armed = false
end

local ask = hook_name == "on_enqueue" and ask_on_enqueue or ask_on_failure

-- What the host calls -----------------------------------------------------------------------------------------------

-- Two numbers for each message, then the texts of all of them.
local function put(messages, ...)
  given, out, top, out_bytes, needed, waits, config = { ... }, {}, 0, 0, nil, 0, {}
  place, last, texts_at = 1, 2 * messages, 2 * messages + 1
end

local function put_config(key, value, exists, is_first)
  forget_globals()
  if is_first then config = {} end
  config[key] = exists and value                   -- false: there is none
end

local function run()
  while place <= last do
    if needed == nil then
      looks, deadline, waits = 0, nil, 0
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

-- Passes the message that has no answer by, and says why: "late", "large" or "error" with a text.
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
  sethook(tick, "", 100)
  local chunk, why = load(given[1], "=line", "t", environment)
  if not chunk then
    problem = why
    return false
  end
  looks, deadline, stopped, armed = 0, nil, nil, true
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

return begin, put, put_config, run, take, wanted, fault
"""

PRELUDE: Final = LIBRARY + _PROTOCOL
