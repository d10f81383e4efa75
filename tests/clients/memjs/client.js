// Every operation of memjs, a client of the binary protocol alone, against the server at HOST PORT.
// Exits with 1 at the first surprise.
'use strict';

const crypto = require('node:crypto');
const { isDeepStrictEqual } = require('node:util');
const memjs = require('memjs');

const [host, port] = process.argv.slice(2);
const server = `${host}:${port}`;
const quiet = { log: () => {} };

function check(what, got, wanted) {
  if (!isDeepStrictEqual(got, wanted)) {
    console.log(`memjs: ${what}: got ${String(got).slice(0, 200)}, wanted ${String(wanted).slice(0, 200)}`);
    process.exit(1);
  }
}

async function refused(what, message, promise) {
  try {
    check(what, await promise, message);
  } catch (error) {
    check(what, error.message.includes(message) ? message : error.message, message);
  }
}

const text = async (client, key) => String((await client.get(key)).value);
const none = async (client, key) => (await client.get(key)).value;

async function storage(client) {
  check('set', await client.set('s', 'value', {}), true);
  check('get', await text(client, 's'), 'value');
  check('get miss', await none(client, 'none'), null);
  check('add', await client.add('s', 'x', {}), false);
  check('add new', await client.add('added', 'x', {}), true);
  check('replace', await client.replace('s', 'other', {}), true);
  check('replace miss', await client.replace('none', 'x', {}), false);
  check('append', await client.append('s', '+'), true);
  check('prepend', await client.prepend('s', '-'), true);
  await refused('append miss', 'not stored', client.append('none', 'x'));
  await refused('prepend miss', 'not stored', client.prepend('none', 'x'));
  // memjs 1.3.2 sends an append where it is asked for a prepend.
  check('get joined', await text(client, 's'), 'other+-');
  check('delete', await client.delete('s'), true);
  check('delete miss', await client.delete('s'), false);
  check('get deleted', await none(client, 's'), null);
  for (const value of [Buffer.alloc(0), Buffer.from('bytes\0\r\n'), crypto.randomBytes(900_000)]) {
    check('set of bytes', await client.set('v', value, {}), true);
    check('get of bytes', (await client.get('v')).value.equals(value), true);
  }
  check('set of the longest key', await client.set('k'.repeat(250), 'x', {}), true);
  check('get of the longest key', await text(client, 'k'.repeat(250)), 'x');
}

// All requests are sent at once and told apart by the opaque that comes back.
async function many(client) {
  const keys = Array.from({ length: 1000 }, (_, number) => `many${number}`);
  const of = (operation) => Promise.all(keys.map(operation));
  check('set of many', (await of((key) => client.set(key, key, {}))).every((stored) => stored === true), true);
  check('get of many', await of((key) => text(client, key)), keys);
  check('delete of many', (await of((key) => client.delete(key))).every((deleted) => deleted === true), true);
  check('get of what is deleted', (await of((key) => none(client, key))).every((value) => value === null), true);
}

async function counting(client) {
  const counted = async (operation) => (await operation).value;
  check('increment initial', await counted(client.increment('i', 5, { initial: 40 })), 40);
  check('increment', await counted(client.increment('i', 5, {})), 45);
  check('decrement', await counted(client.decrement('i', 3, {})), 42);
  check('get of a number', (await text(client, 'i')).trim(), '42');
  check('decrement below zero', await counted(client.decrement('i', 100, {})), 0);
  check('decrement initial', await counted(client.decrement('j', 1, { initial: 7 })), 7);
  await client.set('text', 'x', {});
  await refused('increment of text', 'INCREMENT', client.increment('text', 1, {}));
  check('after an error', await counted(client.increment('i', 1, {})), 1);
}

async function times(client) {
  for (const key of ['t', 'u']) {
    await client.set(key, key, { expires: 2 });
  }
  await client.increment('n', 1, { initial: 1, expires: 2 });
  await client.set('w', 'w', { expires: Math.floor(Date.now() / 1000) + 100 });
  check('touch', await client.touch('u', 100), true);
  check('touch miss', await client.touch('none', 100), false);
  await new Promise((done) => setTimeout(done, 3200));
  check('expired', [await none(client, 't'), await none(client, 'n')], [null, null]);
  check('not expired', [await text(client, 'u'), await text(client, 'w')], ['u', 'w']);
}

// A serializer of one's own keeps the kind of a value in the flags.
async function flags() {
  const serializer = {
    serialize(opcode, value, extras) {
      extras.writeUInt32BE(0xfffffffe, 0);
      return { value: JSON.stringify(value), extras };
    },
    deserialize(opcode, value, extras) {
      return { value: extras.readUInt32BE(0) === 0xfffffffe ? JSON.parse(value) : value, extras };
    },
  };
  const client = memjs.Client.create(server, { serializer, timeout: 10, logger: quiet });
  const wanted = { a: [1, 'zwei', null] };
  check('set of an object', await client.set('o', wanted, {}), true);
  check('get of an object', (await client.get('o')).value, wanted);
  client.close();
}

async function wholeServer(client) {
  await refused('a value too large', 'SET', client.set('large', Buffer.alloc(2_000_000), {}));
  check('set after an error', await client.set('f', 'x', {}), true);
  const stats = await told(client, 'stats');
  for (const key of ['pid', 'version', 'curr_items', 'cmd_get', 'threads']) {
    check(`stats ${key}`, key in stats, true);
  }
  check('statsWithKey', 'maxbytes' in await told(client, 'statsWithKey', 'settings'), true);
  await told(client, 'resetStats');
  check('stats after reset', (await told(client, 'stats')).get_hits, '0');
  check('flush', Object.values((await client.flush())).length > 0, true);
  check('get flushed', await none(client, 'f'), null);
}

function told(client, operation, ...rest) {
  return new Promise((done, fail) => {
    client[operation](...rest, (error, from, stats) => (error ? fail(error) : done(stats)));
  });
}

async function main() {
  const client = memjs.Client.create(server, { timeout: 10, retries: 1, logger: quiet });
  await client.flush();
  await storage(client);
  await many(client);
  await counting(client);
  await times(client);
  await flags();
  await wholeServer(client);
  client.quit();
  console.log('memjs: all well');
}

main().catch((error) => {
  console.log(`memjs: ${error.stack}`);
  process.exit(1);
});
