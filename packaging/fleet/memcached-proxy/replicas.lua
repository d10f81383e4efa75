-- Each key on two of three servers: one of them may fail without a miss.
--
--   memcached -l 0.0.0.0 -o proxy_config=routelib,proxy_arg=replicas.lua
--
-- Both pools have the same servers, the second one begins one later. So a key's second server is never its first.
-- It takes twice the memory. A read asks the second server where the first one fails or misses.

settings{
    -- Seconds. A server that refuses connections is left alone for as long as the first one says.
    backend_retry_waittime = 2,
    backend_connect_timeout = 1,
    backend_read_timeout = 1,
}

pools{
    first = { backends = { "10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211" } },
    second = { backends = { "10.0.0.2:11211", "10.0.0.3:11211", "10.0.0.1:11211" } },
}

local both = { "first", "second" }

routes{
    cmap = {
        get = route_failover{ children = both, miss = true },
        gets = route_failover{ children = both, miss = true },
        mg = route_failover{ children = both, miss = true },
        -- A delete that did not reach both fails, and the client has to repeat it.
        delete = route_allsync{ children = both },
        md = route_allsync{ children = both },
    },
    -- Both get it, and one that is down is no error.
    default = route_allfastest{ children = both },
}
