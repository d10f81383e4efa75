-- Each key on one of three servers.
--
--   memcached -l 0.0.0.0 -o proxy_config=routelib,proxy_arg=sharding.lua
--
-- A server's place in the list says which keys it has, not its address. Add servers at the end: then a new one takes
-- its share of all keys and no other key moves. A server that replaces another takes its place in the list. Only the
-- last one can leave without moving more keys than its own. After a change: kill -HUP.

settings{
    -- Seconds. A server that refuses connections is left alone for as long as the first one says.
    backend_retry_waittime = 2,
    backend_connect_timeout = 1,
    backend_read_timeout = 1,
}

pools{
    all = {
        backends = {
            "10.0.0.1:11211",
            "10.0.0.2:11211",
            "10.0.0.3:11211",
        },
    },
}

routes{
    default = route_direct{ child = "all" },
}
