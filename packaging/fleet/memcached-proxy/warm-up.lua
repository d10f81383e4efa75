-- A fleet grows from three servers to four without a miss.
--
--   memcached -l 0.0.0.0 -o proxy_config=routelib:warm.lua,proxy_arg=warm-up.lua
--
-- The step between sharding.lua with three servers and sharding.lua with four. Start the proxy with warm.lua from the
-- beginning, so that kill -HUP is enough for each step. While this is in use, copy-items brings over what has moved.
-- The old pool may as well be one of memcached's: then a whole cache moves.

settings{
    -- Seconds. A server that refuses connections is left alone for as long as the first one says.
    backend_retry_waittime = 2,
    backend_connect_timeout = 1,
    backend_read_timeout = 1,
}

pools{
    old = { backends = { "10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211" } },
    new = { backends = { "10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211", "10.0.0.4:11211" } },
}

routes{
    default = route_warm{ child_new = "new", child_old = "old", stats = true },
}
