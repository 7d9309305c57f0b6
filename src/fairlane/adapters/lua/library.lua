-- The first half of the prelude: the limits of a call, and the functions that a script may use.
--
-- It is an allow-list: a function that is not named here does not exist for a script. Functions of Lua's own libraries
-- are made safe: none takes or produces much more than 64 KiB, runs long without checking the clock, shows an address,
-- or can be replaced. See prelude.py for how the parts work together.

local limit_s, queue_name, hook_name, clock = ...
local base, sethook, dump = _G, debug.sethook, string.dump
local error, getmetatable, load, next, pcall, select, setmetatable, tonumber, tostring, type =
  error, getmetatable, load, next, pcall, select, setmetatable, tonumber, tostring, type
local math, string, table, utf8, heap = math, string, table, utf8, collectgarbage
local byte, find, format, gmatch, gsub, match, rep, sub =
  string.byte, string.find, string.format, string.gmatch, string.gsub, string.match, string.rep, string.sub
local insert, unpack = table.insert, table.unpack

local TEXT_MAX = 65536          -- bytes a string function takes or produces
local PATTERN_MAX = 64          -- bytes of a pattern
local STEPS_MAX = 5e6           -- steps a search may take, at worst: about 10 ms
local STEPS_FREE = 5000         -- steps that need no check of the clock
local LIST_MAX = 4096           -- entries a table function moves
local NUMBER_TEXT_MAX = 128     -- bytes of a string that is read as a number
local COUNT, COUNT_FINE = 100, 20   -- instructions between two checks
local HEAP_SMALL_KB = 256       -- below this no single instruction takes long
local HEAP_LARGE_KB = 512       -- from here on a few instructions may take long: check more often
local LOOKS_FREE = 4            -- checks with a small heap that don't read the clock
local CONFIG_KEYS_MAX = 32      -- config keys that one message may read
local CONFIG_KEY_MAX = 2048     -- bytes; the host has a limit in characters

-- Limits ------------------------------------------------------------------------------------------------------------

local armed, looks, deadline, stopped = false, 0, nil, nil
local has_looked, is_fine = false, false

-- The time of a message starts with its call: run sets the deadline before it arms these checks.

local function stop(why)
  stopped, armed = why, false
  error(why, 0)
end

local function look()
  if not armed then return end
  has_looked = true
  if clock() > deadline then stop("late") end
end

local tick
function tick()
  local kilobytes = heap("count")
  if kilobytes < HEAP_SMALL_KB then
    if looks < LOOKS_FREE then
      looks = looks + 1
      return
    end
  elseif kilobytes >= HEAP_LARGE_KB and not is_fine then
    is_fine = true
    sethook(tick, "", COUNT_FINE)
  end
  look()
end

local function settle(ok, problem, ...)
  if ok and not stopped then return true, problem, ... end
  if stopped then error(stopped, 0) end
  if problem == "not enough memory" then stop("large") end
  look()
  return false, problem
end

local function safe_pcall(f, ...)
  return settle(pcall(f, ...))
end

-- Strings -----------------------------------------------------------------------------------------------------------

local function text(s, name)
  local kind = type(s)
  if kind == "number" then return tostring(s) end
  if kind ~= "string" then error(name .. " takes a string, not a " .. kind, 3) end
  if #s > TEXT_MAX then error(name .. ": the string is longer than 64 KiB", 3) end
  if #s > STEPS_FREE then look() end
  return s
end

-- No string that a script can reach has a zero byte: Lua compares strings piece by piece between those, and comparing
-- two strings of nothing else takes 10 ms per MiB. So they enter neither with messages nor by these functions.
local function zero_free(s, name)
  if find(s, "\0", 1, true) then error(name .. ": strings can't contain a zero byte", 3) end
  return s
end

local function without_zero(name, f)
  return function(...) return zero_free(f(...), name) end
end

local function safe_tonumber(value, ...)
  if type(value) == "string" and #value > NUMBER_TEXT_MAX then return nil end
  return tonumber(value, ...)
end

local function capped(name, f)
  return function(s, ...) return f(text(s, name), ...) end
end

-- What the worst case of a pattern depends on: how many positions it tries, and how many parts are optional.
local function growth_of(pattern, is_anchor_known)
  local power, factor, at, last = 1, 1, 1, #pattern
  if byte(pattern, 1) == 94 and is_anchor_known then power, at = 0, 2 end        -- ^
  while at <= last do
    local c = byte(pattern, at)
    if c == 37 then                                                              -- %
      local d = byte(pattern, at + 1)
      if d == 98 or d == 102 then error("%b and %f are not allowed in patterns", 4) end
      if d and d >= 48 and d <= 57 then power = power + 1 end                    -- compares what was captured
      at = at + 1
    elseif c == 91 then                                                          -- [ up to its ]
      at = at + 1
      if byte(pattern, at) == 94 then at = at + 1 end
      repeat
        if byte(pattern, at) == 37 then at = at + 1 end
        at = at + 1
      until at > last or byte(pattern, at) == 93
    elseif c == 42 or c == 43 or c == 45 then                                    -- * + -
      power = power + 1
    elseif c == 63 then                                                          -- ?
      factor = factor * 2
    end
    at = at + 1
  end
  return power, factor
end

local function steps_of(s, pattern, is_anchor_known)
  if type(pattern) ~= "string" then error("a pattern is a string", 3) end
  if #pattern > PATTERN_MAX then error("the pattern is longer than 64 bytes", 3) end
  local power, factor = growth_of(pattern, is_anchor_known)
  local steps = factor * #pattern
  for i = 1, power do steps = steps * (#s + i) / i end   -- the ways to choose that many places in order
  if steps > STEPS_MAX then
    error("the pattern may take too long on a string of " .. #s .. " bytes", 3)
  end
  if steps > STEPS_FREE then look() end
  return steps
end

local function safe_find(s, pattern, init, plain)
  s = text(s, "find")
  if plain then
    pattern = text(pattern, "find")
    if #s * #pattern > STEPS_MAX then error("find: the strings are too long", 2) end
    if #s * #pattern > STEPS_FREE then look() end
    return find(s, pattern, init, true)
  end
  steps_of(s, pattern, true)
  return find(s, pattern, init)
end

local function safe_match(s, pattern, init)
  s = text(s, "match")
  steps_of(s, pattern, true)
  return match(s, pattern, init)
end

local function safe_gmatch(s, pattern)
  s = text(s, "gmatch")
  local steps = steps_of(s, pattern, false)        -- gmatch treats ^ as an ordinary character
  local following = gmatch(s, pattern)
  return function()
    if steps > STEPS_FREE then look() end
    return following()
  end
end

local function safe_gsub(s, pattern, replacement, count)
  s = text(s, "gsub")
  steps_of(s, pattern, true)
  if type(replacement) == "string" then
    if #replacement > TEXT_MAX then error("gsub: the replacement is longer than 64 KiB", 2) end
    if #s * #replacement > STEPS_FREE then look() end
  end
  return gsub(s, pattern, replacement, count)
end

local function safe_rep(s, count, separator)
  s, separator = text(s, "rep"), text(separator or "", "rep")
  local n = safe_tonumber(count)
  if n == nil then error("rep takes a number of times", 2) end
  if n > TEXT_MAX or n * (#s + #separator) > TEXT_MAX then error("rep makes more than 64 KiB", 2) end
  return rep(s, n, separator)
end

local function shown(value)
  local kind = type(value)
  if kind == "string" or kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
  return kind                                      -- never an address
end

local function safe_format(pattern, ...)
  pattern = text(pattern, "format")
  if #pattern > 1024 then error("format: the pattern is longer than 1 KiB", 2) end
  if find(gsub(pattern, "%%%%", ""), "%%[^%a]*p") then error("format: %p is not allowed", 2) end
  local count, size, values = select("#", ...), 0, { ... }
  if count > 64 then error("format takes at most 64 values", 2) end
  for i = 1, count do
    local value = values[i]
    local kind = type(value)
    if kind == "string" then
      size = size + #value
    elseif kind ~= "number" and kind ~= "boolean" and kind ~= "nil" then
      values[i] = kind
    end
  end
  if size > TEXT_MAX then error("format: the strings are longer than 64 KiB", 2) end
  return zero_free(format(pattern, unpack(values, 1, count)), "format")
end

-- Tables ------------------------------------------------------------------------------------------------------------

local function list(t, name)
  if type(t) ~= "table" or getmetatable(t) ~= nil then error(name .. " takes a plain table", 3) end
  return t
end

local function safe_insert(t, ...)
  list(t, "insert")
  if select("#", ...) == 1 then
    t[#t + 1] = (...)
    return
  end
  if #t > LIST_MAX then error("insert: the table has more than 4096 entries", 2) end
  insert(t, ...)
end

local function safe_remove(t, ...)
  if #list(t, "remove") > LIST_MAX and select("#", ...) > 0 then
    error("remove: the table has more than 4096 entries", 2)
  end
  return table.remove(t, ...)
end

local function span(from, to, name)
  if type(from) ~= "number" or type(to) ~= "number" then error(name .. " takes numbers", 3) end
  if to - from >= LIST_MAX or from < -LIST_MAX or to > 2 * LIST_MAX * LIST_MAX then
    error(name .. ": more than 4096 entries", 3)
  end
end

local function safe_concat(t, separator, from, to)
  list(t, "concat")
  from, to = from or 1, to or #t
  span(from, to, "concat")
  return table.concat(t, text(separator or "", "concat"), from, to)
end

local function safe_unpack(t, from, to)
  list(t, "unpack")
  from, to = from or 1, to or #t
  span(from, to, "unpack")
  return unpack(t, from, to)
end

-- Configuration -----------------------------------------------------------------------------------------------------

local config, needed, waits, is_loading = {}, nil, 0, true

local function get(key)
  if type(key) ~= "string" then error("fairlane.get takes a string, not a " .. type(key), 2) end
  local value = config[key]
  if value == nil then
    if is_loading then error("fairlane.get can be called only inside the hook", 2) end
    if #key > CONFIG_KEY_MAX then return nil end
    if waits >= CONFIG_KEYS_MAX then error("reads more than 32 configuration keys for one message", 2) end
    needed = key
    stop("config")
  end
  return value or nil
end

-- The environment: what is not named here does not exist --------------------------------------------------------------

local function refuse(_, name)
  error("'" .. shown(name) .. "' can't be set: the libraries are read-only", 2)
end

local function locked(library)
  return setmetatable({}, { __index = library, __newindex = refuse, __metatable = false })
end

local function pick(library, names)
  local picked = {}
  for name in gmatch(names, "%w+") do picked[name] = library[name] end
  return picked
end

local strings = pick(string, "byte len sub")
strings.char = without_zero("char", string.char)
strings.lower, strings.upper = capped("lower", string.lower), capped("upper", string.upper)
strings.reverse, strings.rep, strings.format = capped("reverse", string.reverse), safe_rep, safe_format
strings.find, strings.match, strings.gmatch, strings.gsub = safe_find, safe_match, safe_gmatch, safe_gsub

local numbers = pick(math, [[abs ceil exp floor fmod huge log max maxinteger min mininteger modf pi random sqrt
  tointeger type ult]])

local of_strings = getmetatable("")
of_strings.__index, of_strings.__metatable = strings, false
for event, f in next, of_strings do
  if type(f) == "function" then                    -- arithmetic, which reads strings as numbers
    of_strings[event] = function(a, b)
      if type(a) == "string" and #a > NUMBER_TEXT_MAX or type(b) == "string" and #b > NUMBER_TEXT_MAX then
        error("attempt to perform arithmetic on a long string", 2)
      end
      return f(a, b)
    end
  end
end

-- Functions that take numbers would parse a long string again and again.
local function numeric(f)
  return function(a, ...)
    if type(a) == "string" then a = safe_tonumber(a) end
    return f(a, ...)
  end
end
for _, name in next, { "abs", "ceil", "exp", "floor", "fmod", "log", "modf", "sqrt" } do
  numbers[name] = numeric(numbers[name])
end

local kept = pick(base, "assert error ipairs next pairs select type")
kept._VERSION = _VERSION
kept.pcall, kept.tonumber, kept.tostring = safe_pcall, safe_tonumber, shown
kept.string, kept.math = locked(strings), locked(numbers)
kept.table = locked({
  concat = safe_concat, insert = safe_insert, pack = table.pack, remove = safe_remove, unpack = safe_unpack,
})
kept.utf8 = locked({ char = without_zero("utf8.char", utf8.char), len = capped("utf8.len", utf8.len) })
kept.fairlane = locked({ get = get })
kept.fila = kept.fairlane                          -- a script written for Fila runs unchanged

local environment = setmetatable({}, { __index = kept, __metatable = false })
kept._G = environment

for name in next, base do base[name] = nil end     -- unused from here on; an allow-list leaves nothing behind
