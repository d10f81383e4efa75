-- A route for memcached's proxy: what the new pool lacks is asked of the old one.
--
--   route_warm{ child_new = "POOL", child_old = "POOL" }
--
-- New values go to the new pool. A request that finds no item there is made again to the old pool, so items that lie
-- there are read and changed there, and clients see no miss. A delete goes to both. `copy-items` brings over what
-- nobody stores anew; after it the old pool is not needed.
--
-- What it does not do: a value that the new pool loses while this route is in use is answered from the old pool, if
-- that one still has an older value.
--
-- The route does not copy values by itself. A request made from a response (mcp.request of memcached 1.6.45) carries
-- only that part of the value that the proxy's first read brought; the server would take the next requests for the rest.

register_route_handlers({ "warm" })

function route_warm_conf(t, ctx)
    if t.stats then
        t.stats_id = ctx:get_stats_id(t.stats_name or "asked_old")
    end
    return t
end

-- Whether the answer says that there is no such item.
local function is_miss(answer)
    local code = answer:code()
    return (answer:ok() and not answer:hit()) or code == mcp.MCMC_CODE_NOT_FOUND or code == mcp.MCMC_CODE_NOT_STORED
end

-- Whether the request stores a value whatever is there.
local function is_plain_set(r, cmd)
    if cmd ~= mcp.CMD_MS then
        return cmd == mcp.CMD_SET
    end
    local has_mode, mode = r:flag_token("M")
    return not r:has_flag("C") and (not has_mode or mode == "S" or mode == "s" or mode == "SET" or mode == "set")
end

-- Whether the request makes an item if there is none: the new pool's answer would not tell that the old one has it.
local function may_create(r, cmd)
    if cmd == mcp.CMD_MS then
        local has_mode, mode = r:flag_token("M")
        return has_mode and (mode == "E" or mode == "e" or mode == "ADD" or mode == "add" or r:has_flag("N"))
    end
    return cmd == mcp.CMD_ADD or ((cmd == mcp.CMD_MG or cmd == mcp.CMD_MA) and r:has_flag("N"))
end

local function route_warm_f(rctx, a)
    -- Looks for the key without its value.
    local function is_in(pool, r, cmd)
        -- Keys of meta commands may be in base64.
        local is_meta = cmd == mcp.CMD_MG or cmd == mcp.CMD_MS or cmd == mcp.CMD_MA
        local base64 = (is_meta and r:has_flag("b")) and " b" or ""
        return rctx:enqueue_and_wait(mcp.request("mg " .. r:key() .. base64 .. "\r\n"), pool):hit()
    end

    local function ask_old(r)
        if a.stats_id then
            mcp.stat(a.stats_id, 1)
        end
        return rctx:enqueue_and_wait(r, a.old)
    end

    return function(r)
        local cmd = r:command()
        if is_plain_set(r, cmd) then
            return rctx:enqueue_and_wait(r, a.new)
        end
        if cmd == mcp.CMD_DELETE or cmd == mcp.CMD_MD then
            rctx:enqueue(r, a.old)
            local answer = rctx:enqueue_and_wait(r, a.new)
            local before = rctx:wait_handle(a.old)
            -- It was there if either had it, and it is gone only if both say so.
            if is_miss(answer) or not (is_miss(before) or before:ok()) then
                return before
            end
            return answer
        end
        if may_create(r, cmd) then
            if not is_in(a.look_new, r, cmd) and is_in(a.look_old, r, cmd) then
                return ask_old(r)
            end
            return rctx:enqueue_and_wait(r, a.new)
        end
        local answer = rctx:enqueue_and_wait(r, a.new)
        if is_miss(answer) then
            return ask_old(r)
        end
        return answer
    end
end

function route_warm_start(t, ctx, fgen)
    -- A handle takes one request at a time.
    local a = {
        stats_id = t.stats_id,
        new = fgen:new_handle(t.child_new),
        look_new = fgen:new_handle(t.child_new),
        old = fgen:new_handle(t.child_old),
        look_old = fgen:new_handle(t.child_old),
    }
    fgen:ready({ a = a, n = ctx:label(), f = route_warm_f })
end
