<?php
// Every operation of PHP's memcached extension (libmemcached) against the server at HOST PORT, in the DIALECT text or
// binary. Exits with 1 at the first surprise.
declare(strict_types=1);

[, $host, $port, $dialect] = $argv;
$binary = $dialect === 'binary';

function fail(string $what, mixed $got, mixed $wanted): never
{
    $shown = fn(mixed $value): string => substr(json_encode($value, JSON_PARTIAL_OUTPUT_ON_ERROR) ?: 'bytes', 0, 200);
    echo "php: $what: got {$shown($got)}, wanted {$shown($wanted)}\n";
    exit(1);
}

function check(string $what, mixed $got, mixed $wanted): void
{
    if ($got !== $wanted) {
        fail($what, $got, $wanted);
    }
}

/** Beside a false there is a code that says why; in binary it tells more. */
function misses(string $what, Memcached $client, mixed $got, int ...$codes): void
{
    check($what, $got, false);
    if (!in_array($client->getResultCode(), $codes, true)) {
        fail("$what, its code", $client->getResultCode(), $codes);
    }
}

function connected(array $options = []): Memcached
{
    global $host, $port, $binary;
    $client = new Memcached();
    $client->setOptions($options + [
        Memcached::OPT_BINARY_PROTOCOL => $binary,
        Memcached::OPT_TCP_NODELAY => true,
        Memcached::OPT_RECV_TIMEOUT => 10_000_000,
        Memcached::OPT_POLL_TIMEOUT => 10_000,
    ]);
    $client->addServer($host, (int) $port);
    return $client;
}

function storage(Memcached $client): void
{
    check('set', $client->set('s', 'value'), true);
    check('get', $client->get('s'), 'value');
    misses('get miss', $client, $client->get('none'), Memcached::RES_NOTFOUND);
    check('get with a call back', $client->get('made', function ($client, $key, &$value) {
        $value = 'anew';
        return true;
    }), 'anew');
    check('get of what the call back made', $client->get('made'), 'anew');
    misses('add', $client, $client->add('s', 'x'), Memcached::RES_NOTSTORED, Memcached::RES_DATA_EXISTS);
    check('add new', $client->add('added', 'x'), true);
    check('replace', $client->replace('s', 'other'), true);
    misses('replace miss', $client, $client->replace('none', 'x'), Memcached::RES_NOTSTORED, Memcached::RES_NOTFOUND);
    $client->setOption(Memcached::OPT_COMPRESSION, false);
    check('append', $client->append('s', '+'), true);
    check('prepend', $client->prepend('s', '-'), true);
    misses('append miss', $client, $client->append('none', 'x'), Memcached::RES_NOTSTORED);
    misses('prepend miss', $client, $client->prepend('none', 'x'), Memcached::RES_NOTSTORED);
    $client->setOption(Memcached::OPT_COMPRESSION, true);
    check('get joined', $client->get('s'), '-other+');
    check('delete', $client->delete('s'), true);
    misses('delete miss', $client, $client->delete('s'), Memcached::RES_NOTFOUND);
    $longest = str_repeat('k', 250);
    check('set of the longest key', $client->set($longest, 'x'), true);
    check('get of the longest key', $client->get($longest), 'x');
}

/** The type of a value, that it is compressed, and the user's own flags are bits of the flags. */
function values(Memcached $client): void
{
    foreach ([1, -5, 1.5, true, null, '', "bytes\0\r\n", ['a' => [1, 'zwei', null]], str_repeat('long ', 10_000)] as $value) {
        check('set of a ' . gettype($value), $client->set('v', $value), true);
        check('get of a ' . gettype($value), $client->get('v'), $value);
    }
    $large = random_bytes(900_000);
    check('set large', $client->set('large', $large), true);
    check('get large', $client->get('large') === $large, true);
    misses('a value too large', $client, $client->set('toolarge', random_bytes(2_000_000)), Memcached::RES_E2BIG);
    misses('get of what was too large', $client, $client->get('toolarge'), Memcached::RES_NOTFOUND);
    $flagged = connected([Memcached::OPT_USER_FLAGS => 0xfff0]);
    check('set with flags of the user', $flagged->set('f', 'x'), true);
    $seen = $flagged->get('f', null, Memcached::GET_EXTENDED);
    check('get of flags of the user', [$seen['value'], $seen['flags']], ['x', 0xfff0]);
}

function many(Memcached $client): void
{
    $wanted = [];
    for ($i = 0; $i < 1000; $i++) {
        $wanted["many$i"] = "value$i";
    }
    check('setMulti', $client->setMulti($wanted), true);
    $keys = array_keys($wanted);
    $seen = $client->getMulti([...$keys, 'none'], Memcached::GET_PRESERVE_ORDER);
    check('getMulti', $seen, $wanted + ['none' => null]);
    check('getMulti of misses', $client->getMulti(['none', 'none2']), []);
    $extended = $client->getMulti(['many1', 'none'], Memcached::GET_EXTENDED);
    check('getMulti with cas', [array_keys($extended), $extended['many1']['value'], $extended['many1']['cas'] > 0], [['many1'], 'value1', true]);
    check('getDelayed', $client->getDelayed(['many1', 'none', 'many2'], true), true);
    check('fetch', array_diff_key($client->fetch(), ['cas' => 1, 'flags' => 1]), ['key' => 'many1', 'value' => 'value1']);
    check('fetchAll', array_column($client->fetchAll(), 'value', 'key'), ['many2' => 'value2']);
    $deleted = $client->deleteMulti([...$keys, 'none']);
    check('deleteMulti', $deleted, array_fill_keys($keys, true) + ['none' => Memcached::RES_NOTFOUND]);
    check('getMulti of what is deleted', $client->getMulti($keys), []);
}

function cas(Memcached $client): void
{
    $client->set('c', 'first');
    $token = $client->get('c', null, Memcached::GET_EXTENDED)['cas'];
    check('cas', $client->cas($token, 'c', 'second'), true);
    misses('cas again', $client, $client->cas($token, 'c', 'third'), Memcached::RES_DATA_EXISTS);
    check('get after cas', $client->get('c'), 'second');
    $client->delete('c');
    misses('cas miss', $client, $client->cas($token, 'c', 'x'), Memcached::RES_NOTFOUND);
}

function counting(Memcached $client, bool $binary): void
{
    $client->set('i', 10);
    check('increment', $client->increment('i'), 11);
    check('increment by', $client->increment('i', 31), 42);
    check('decrement', $client->decrement('i', 2), 40);
    check('decrement below zero', $client->decrement('i', 100), 0);
    misses('increment miss', $client, $client->increment('none'), Memcached::RES_NOTFOUND);
    misses('decrement miss', $client, $client->decrement('none'), Memcached::RES_NOTFOUND);
    if ($binary) {
        // libmemcached has an initial value in binary only.
        check('increment initial', $client->increment('j', 5, 40, 100), 40);
        check('increment of the initial', $client->increment('j', 5, 40, 100), 45);
        check('decrement initial', $client->decrement('k', 5, 7, 100), 7);
    }
    $client->set('text', 'x');
    // After this answer in binary libmemcached leaves the connection for a while.
    check('increment of text', connected()->increment('text'), false);
    check('after an error', $client->increment('i'), 1);
}

function expiry(Memcached $client): void
{
    foreach (['t', 'u'] as $key) {
        $client->set($key, $key, 2);
    }
    $client->set('w', 'w', time() + 100);
    check('touch', $client->touch('u', 100), true);
    misses('touch miss', $client, $client->touch('none', 100), Memcached::RES_NOTFOUND);
    usleep(3_200_000);
    check('what is expired and what is not', $client->getMulti(['t', 'u', 'w']), ['u' => 'u', 'w' => 'w']);
}

function withoutReply(Memcached $client): void
{
    $silent = connected([Memcached::OPT_NOREPLY => true]);
    for ($i = 0; $i < 1000; $i++) {
        $silent->set('n' . $i % 10, $i);
    }
    $silent->add('n1', 'not this');
    $silent->delete('n2');
    $silent->set('n10', 'last');
    $silent->quit();
    for ($tries = 0; $tries < 200 && $client->get('n10') !== 'last'; $tries++) {
        usleep(10_000);
    }
    check('orders without a reply', $client->getMulti(['n1', 'n2', 'n9', 'n10']), ['n1' => 991, 'n9' => 999, 'n10' => 'last']);
}

function wholeServer(Memcached $client, string $server): void
{
    check('getVersion', preg_match('/^[1-9]\d*\.\d+\.\d+/', $client->getVersion()[$server]), 1);
    $stats = $client->getStats()[$server];
    foreach (['pid', 'curr_items', 'cmd_get', 'limit_maxbytes', 'threads'] as $key) {
        check("getStats $key", $stats[$key] > 0, true);
    }
    check('getStats settings', isset($client->getStats('settings')[$server]['maxbytes']), true);
    $client->setOption(Memcached::OPT_PREFIX_KEY, 'space:');
    check('set with a prefix', $client->set('key', 1), true);
    $client->setOption(Memcached::OPT_PREFIX_KEY, '');
    check('get with a prefix', $client->get('space:key'), 1);
    check('flush', $client->flush(), true);
    misses('get flushed', $client, $client->get('space:key'), Memcached::RES_NOTFOUND);
    check('quit', $client->quit(), true);
    check('a new connection', $client->set('f', 1), true);
}

$client = connected();
$client->flush();
storage($client);
values($client);
many($client);
cas($client);
counting($client, $binary);
expiry($client);
withoutReply($client);
wholeServer($client, "$host:$port");
echo "php: all well in $dialect\n";
