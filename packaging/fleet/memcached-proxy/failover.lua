-- Each key on one of three servers; while that one is down, on the next one.
--
--   memcached -l 0.0.0.0 -o proxy_config=routelib,proxy_arg=failover.lua
--
-- Both pools have the same servers, the second one begins one later. So a key's second server is never its first.
-- What is stored on the second one lives for a minute: longer, and it would be found there the next time that the first
-- one fails, with the value of back then. That is so for all of it, also for what was to live for less: the proxy of 1.6.45
-- does not tell a route the time that a "set" asks for. Take a ttl that no item of yours must outlive.

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

local short = route_ttl{ ttl = 60, child = "second" }

routes{
    cmap = {
        set = route_failover{ children = { "first", short } },
        add = route_failover{ children = { "first", short } },
        cas = route_failover{ children = { "first", short } },
        ms = route_failover{ children = { "first", short } },
        -- A delete that did not reach the first server has to fail: that one may come back with the item.
        delete = route_direct{ child = "first" },
        md = route_direct{ child = "first" },
    },
    default = route_failover{ children = { "first", "second" } },
}
