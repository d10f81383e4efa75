# Every operation of Dalli against the server at HOST PORT, in the DIALECT binary or meta.
# Exits with 1 at the first surprise.

require 'dalli'
require 'openssl'

HOST, PORT, DIALECT = ARGV
Dalli.logger.level = Logger::FATAL

def check(what, got, wanted)
  return if wanted.respond_to?(:call) ? wanted.call(got) : got == wanted

  warn "dalli: #{what}: got #{got.inspect[0, 300]}, wanted #{wanted.respond_to?(:call) ? 'another' : wanted.inspect[0, 300]}"
  exit 1
end

# What the block gives, or the error that it raises.
def attempt
  yield
rescue Dalli::DalliError => e
  e
end

# What Dalli gives for a yes and for a no differs between its protocols.
STORED = ->(got) { got.is_a?(Integer) && got.positive? }
FALSY = ->(got) { !got }

def storage(client)
  check 'set', client.set('s', 'value'), STORED
  check 'get', client.get('s'), 'value'
  check 'get miss', client.get('none'), nil
  check 'add', client.add('s', 'x'), FALSY
  check 'add new', client.add('added', 'x'), STORED
  check 'replace', client.replace('s', 'other'), STORED
  check 'get replaced', client.get('s'), 'other'
  check 'replace miss', client.replace('none', 'x'), FALSY
  client.set('raw', 'b', 0, raw: true)
  check 'append', client.append('raw', 'c'), true
  check 'prepend', client.prepend('raw', 'a'), true
  check 'get joined', client.get('raw', raw: true), 'abc'
  check 'append miss', client.append('none', 'x'), FALSY
  check 'prepend miss', client.prepend('none', 'x'), FALSY
  check 'delete', client.delete('s'), true
  check 'delete miss', client.delete('s'), false
  check 'fetch miss', client.fetch('f') { 'made' }, 'made'
  check 'fetch', client.fetch('f') { 'made again' }, 'made'
  # Serialized and compressed values are told by bits of the flags.
  [1, nil, '', 'text', "bytes\0\n", { 'a' => [1, :b, 2.5] }, 'long ' * 10_000].each do |value|
    client.set('v', value)
    check "get of #{value.inspect[0, 40]}", client.get('v', cache_nils: true), value
  end
  # Bytes that no compression makes smaller; in meta this Dalli itself takes a line's end for the value's.
  large = Random.new(1).bytes(900_000).delete("\r")
  check 'set large', client.set('large', large), STORED
  check 'get large', client.get('large'), large
  too_large = ->(got) { !got || got.is_a?(Dalli::DalliError) }
  check 'a value too large', attempt { client.set('large', large * 2) }, too_large
  check 'get of what was too large', client.get('large'), nil
  check 'set of the longest key', client.set('k' * 250, 1), STORED
  check 'get of the longest key', client.get('k' * 250), 1
end

def many(client)
  keys = (0...1000).map { |number| "many#{number}" }
  client.multi { keys.each { |key| client.set(key, "of #{key}") } }
  check 'get_multi', client.get_multi(keys + ['none']), keys.to_h { |key| [key, "of #{key}"] }
  yielded = {}
  client.get_multi('many1', 'none', 'many2') { |key, value| yielded[key] = value }
  check 'get_multi with a block', yielded, { 'many1' => 'of many1', 'many2' => 'of many2' }
  both = client.get_multi_cas('many3', 'none')
  check 'get_multi_cas', [both.keys, both['many3'][0], STORED.call(both['many3'][1])], [['many3'], 'of many3', true]
  client.multi { keys.each { |key| client.delete(key) } }
  check 'get_multi of what a quiet delete took', client.get_multi(keys), {}
end

def quiet(client)
  client.set('q', 1)
  client.set('n', 10, 0, raw: true)
  client.multi do
    client.add('q', 'not this')
    client.replace('none', 'not this')
    client.replace('q', 'replaced')
    client.append('none', 'x')
    client.incr('n', 5)
    client.decr('n', 1)
    client.delete('none')
  end
  check 'what quiet orders did', [client.get('q'), client.get('n', raw: true), client.get('none')], ['replaced', '14', nil]
end

def cas(client)
  client.set('c', 'first')
  value, token = client.get_cas('c')
  check 'get_cas', [value, STORED.call(token)], ['first', true]
  check 'set_cas', client.set_cas('c', 'second', token), STORED
  check 'set_cas again', client.set_cas('c', 'third', token), FALSY
  check 'replace_cas', client.replace_cas('c', 'third', client.get_cas('c')[1]), STORED
  check 'replace_cas with an old one', client.replace_cas('c', 'fourth', token), FALSY
  check 'delete_cas with an old one', client.delete_cas('c', token), FALSY
  check 'delete_cas', client.delete_cas('c', client.get_cas('c')[1]), true
  check 'set_cas miss', client.set_cas('c', 'fifth', token), FALSY
  check 'cas miss', client.cas('c') { 'x' }, nil
  check 'cas! miss', client.cas!('c') { 'made' }, STORED
  check 'cas', client.cas('c') { |old| "#{old} again" }, STORED
  check 'get after cas', client.get('c'), 'made again'
  check 'cas overtaken', client.cas('c') { client.set('c', 'other') && 'late' }, false
end

def counting(client)
  %w[i j].each { |key| client.delete(key) }
  check 'incr miss', client.incr('i'), nil
  check 'decr miss', client.decr('i'), nil
  check 'incr initial', client.incr('i', 5, 100, 40), 40
  check 'incr', client.incr('i', 5), 45
  check 'decr', client.decr('i', 3), 42
  check 'decr below zero', client.decr('i', 100), 0
  check 'decr initial', client.decr('j', 1, 100, 7), 7
  check 'incr of the largest', client.incr('k', 1, 100, (2**64) - 1), (2**64) - 1
  check 'incr wraps', client.incr('k', 2), 1
  client.set('text', 'x', 0, raw: true)
  check 'incr of text', attempt { client.incr('text') }.class, Dalli::DalliError
  check 'after an error', client.get('i', raw: true).to_i, 0
end

def times(client)
  %w[t u v].each { |key| client.set(key, key, 2) }
  client.incr('w', 1, 2, 5)
  client.set('x', 'x', Time.now.to_i + 100)
  check 'touch', client.touch('u', 100), true
  check 'touch miss', client.touch('none', 100), nil
  check 'gat', client.gat('v', 100), 'v'
  check 'gat miss', client.gat('none', 100), nil
  sleep 3.2
  check 'what is expired and what is not', client.get_multi(%w[t u v w x]), { 'u' => 'u', 'v' => 'v', 'x' => 'x' }
end

# Meta carries keys that the text protocol cannot, in base64; the binary protocol carries any bytes.
def strange_keys(client)
  key = "k\u00fcche \u20ac"
  check 'set of a key with a blank', client.set(key, 1), STORED
  check 'get of a key with a blank', client.get(key), 1
  check 'get_multi of it', client.get_multi(key, 'none'), { key => 1 }
  check 'delete of it', client.delete(key), true
end

def whole_server(client)
  name = "#{HOST}:#{PORT}"
  check 'version', client.version[name], ->(got) { got =~ /\d+\.\d+/ }
  stats = client.stats[name]
  %w[pid version curr_items cmd_get threads].each { |key| check "stats #{key}", stats.key?(key), true }
  check 'stats settings', client.stats(:settings)[name].key?('maxbytes'), true
  check 'reset_stats',client.reset_stats, [true]
  check 'stats after reset', client.stats[name]['get_hits'], '0'
  check 'alive!', client.alive!, ->(_) { true }
  client.set('f', 1)
  check 'flush', client.flush, [true]
  check 'get flushed', client.get('f'), nil
  client.close
  check 'a new connection', [client.set('f', 2), client.get('f')].last, 2
end

def main
  server = "#{HOST}:#{PORT}"
  # The client itself would refuse a value of more than a megabyte.
  settings = { protocol: DIALECT.to_sym, socket_timeout: 10, value_max_bytes: 4 * 1024 * 1024 }
  if (authority = ENV.fetch('TLS_CA', nil))
    context = OpenSSL::SSL::SSLContext.new
    context.set_params(ca_file: authority)
    if (name = ENV.fetch('TLS_CERTIFICATE', nil))
      context.cert = OpenSSL::X509::Certificate.new(File.read(name))
      context.key = OpenSSL::PKey.read(File.read(ENV.fetch('TLS_KEY')))
    end
    settings[:ssl_context] = context
  end
  if DIALECT == 'binary' && ENV.key?('LOGIN_USER')
    settings.update(username: ENV.fetch('LOGIN_USER'), password: ENV.fetch('LOGIN_PASSWORD'))
  end
  client = Dalli::Client.new(server, settings)
  client.flush
  storage(client)
  strange_keys(client)
  many(client)
  quiet(client)
  cas(client)
  counting(client)
  times(client)
  whole_server(client)
  puts "dalli: all well in #{DIALECT}"
end

main
