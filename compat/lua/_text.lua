-- JSON as text, and moments as text: what scripts change without cjson, which rounds long numbers and makes {} of [].

-- The end of the JSON string that begins at `at`. Like the next one: an error for text that ends too early.
local function string_end(text, at)
  at = at + 1
  while true do
    at = string.find(text, '["\\]', at)
    if string.byte(text, at) == 34 then
      return at
    end
    at = at + 2
  end
end

-- The end of the JSON value that begins at `at`.
local function value_end(text, at)
  local first = string.byte(text, at)
  if first == 34 then
    return string_end(text, at)
  end
  if first ~= 123 and first ~= 91 then
    return string.find(text, '[%s,}%]]', at) - 1
  end
  local depth = 0
  while true do
    at = string.find(text, '["{}%[%]]', at)
    local byte = string.byte(text, at)
    if byte == 34 then
      at = string_end(text, at)
    else
      depth = depth + ((byte == 123 or byte == 91) and 1 or -1)
      if depth == 0 then
        return at
      end
    end
    at = at + 1
  end
end

-- ISO 8601 of a moment in whole seconds, UTC, without a zone. The days of the Gregorian calendar are counted from the first of March,
-- so that a leap day ends a year, in eras of 400 years.
local function calendar(seconds)
  local days, rest = math.floor(seconds / 86400) + 719468, seconds % 86400
  local era = math.floor(days / 146097)
  local day_of_era = days - era * 146097
  local leaps = math.floor(day_of_era / 1460) - math.floor(day_of_era / 36524) + math.floor(day_of_era / 146096)
  local year = math.floor((day_of_era - leaps) / 365)
  local day_of_year = day_of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local from_march = math.floor((5 * day_of_year + 2) / 153)
  local day = day_of_year - math.floor((153 * from_march + 2) / 5) + 1
  local month = from_march < 10 and from_march + 3 or from_march - 9
  year = year + era * 400 + (month <= 2 and 1 or 0)
  local time = string.format('%02d:%02d:%02d', math.floor(rest / 3600), math.floor(rest / 60) % 60, rest % 60)
  return string.format('%04d-%02d-%02dT', year, month, day) .. time
end
