-- The requests that wrk sends: `wrk -s wrk.lua URL -- METHOD [BODY [FIRST]]`.
-- With FIRST, the path of each request ends in a number of its own, counted up from there.

function init(args)
   wrk.method = args[1]
   if args[2] and args[2] ~= "" then
      wrk.body = args[2]
      wrk.headers["Content-Type"] = "application/json"
   end
   if args[3] then
      local number = tonumber(args[3]) - 1
      request = function()
         number = number + 1
         return wrk.format(nil, wrk.path .. "/" .. number)
      end
   end
end
