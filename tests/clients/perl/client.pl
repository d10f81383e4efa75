# Every operation of Cache::Memcached::Fast against the server at HOST PORT. Exits with 1 at the first surprise.

use strict;
use warnings;
use Cache::Memcached::Fast;
use Storable ();

my ($host, $port) = @ARGV;

sub fail { print "perl: @_\n"; exit 1 }

sub check {
    my ($what, $got, $wanted) = @_;
    fail("$what: a check of @{[scalar @_]} parts") if @_ != 3;
    local $Storable::canonical = 1;
    my ($one, $other) = map { Storable::freeze(\(my $copy = $_)) } plain($got), plain($wanted);
    return if $one eq $other;
    fail("$what: got " . shown($got) . ', wanted ' . shown($wanted));
}

# Numbers and texts of the same look are the same.
sub plain {
    my ($value) = @_;
    return undef unless defined $value;
    return ref $value eq 'HASH' ? { map { $_ => plain($value->{$_}) } keys %$value }
        : ref $value eq 'ARRAY' ? [ map { plain($_) } @$value ]
        : "$value";
}

sub shown { defined $_[0] ? substr(ref $_[0] eq 'HASH' ? '{' . join(',', sort keys %{ $_[0] }) . '}' : "$_[0]", 0, 200) : 'nothing' }

sub connected {
    return Cache::Memcached::Fast->new({
        servers => ["$host:$port"], connect_timeout => 5, io_timeout => 10, max_size => 4 * 1024 * 1024, utf8 => 0, @_,
    });
}

sub storage {
    my ($client) = @_;
    check('set', scalar $client->set('s', 'value'), 1);
    check('get', scalar $client->get('s'), 'value');
    check('get miss', scalar $client->get('none'), undef);
    check('add', scalar $client->add('s', 'x'), '');
    check('add new', scalar $client->add('added', 'x'), 1);
    check('replace', scalar $client->replace('s', 'other'), 1);
    check('replace miss', scalar $client->replace('none', 'x'), '');
    check('append', scalar $client->append('s', '+'), 1);
    check('prepend', scalar $client->prepend('s', '-'), 1);
    check('append miss', scalar $client->append('none', 'x'), '');
    check('prepend miss', scalar $client->prepend('none', 'x'), '');
    check('get joined', scalar $client->get('s'), '-other+');
    check('delete', scalar $client->delete('s'), 1);
    check('delete miss', scalar $client->delete('s'), '');
    check('set of what is removed', scalar $client->set('s', 1), 1);
    check('remove', scalar $client->remove('s'), 1);
    check('get removed', scalar $client->get('s'), undef);
    check('set of a structure', scalar $client->set('o', { a => [1, 'zwei'], b => '' }), 1);
    check('get of a structure, told by the flags', scalar $client->get('o'), { a => [1, 'zwei'], b => '' });
    my $random = join '', map { chr int rand 256 } 1 .. 900_000;
    for my $value ('', "bytes\0\r\nEND\r\n", $random) {
        check('set of bytes', scalar $client->set('v', $value), 1);
        check('get of bytes', scalar $client->get('v'), $value);
    }
    check('set of the longest key', scalar $client->set('k' x 250, 'x'), 1);
    check('get of the longest key', scalar $client->get('k' x 250), 'x');
    check('a value too large', scalar $client->set('v', 'x' x 2_000_000), undef);
    check('get of what was too large', scalar $client->get('v'), undef);
}

sub many {
    my ($client) = @_;
    my %wanted = map { ("many$_" => "value$_") } 0 .. 999;
    my $stored = $client->set_multi(map { [$_, $wanted{$_}] } keys %wanted);
    check('set_multi', $stored, { map { ($_ => 1) } keys %wanted });
    check('get_multi', scalar $client->get_multi(keys %wanted, 'none'), \%wanted);
    my $seen = $client->gets_multi('many1', 'many2', 'none');
    check('gets_multi', { map { ($_ => $seen->{$_}[1]) } keys %$seen }, { many1 => 'value1', many2 => 'value2' });
    $client->set('many2', 'overtaken');
    my $swapped = $client->cas_multi(map { [$_, $seen->{$_}[0], 'swapped'] } 'many1', 'many2');
    check('cas_multi', $swapped, { many1 => 1, many2 => '' });
    check('add_multi', scalar $client->add_multi(['many1', 'x'], ['fresh', 'x']), { many1 => '', fresh => 1 });
    check('replace_multi', scalar $client->replace_multi(['none', 'x'], ['fresh', 'y']), { none => '', fresh => 1 });
    check('append_multi', scalar $client->append_multi(['none', 'x'], ['fresh', '+']), { none => '', fresh => 1 });
    check('prepend_multi', scalar $client->prepend_multi(['none', 'x'], ['fresh', '-']), { none => '', fresh => 1 });
    check('get of what was joined', scalar $client->get('fresh'), '-y+');
    check('touch_multi', scalar $client->touch_multi(['none', 100], ['fresh', 100]), { none => '', fresh => 1 });
    my $deleted = $client->delete_multi(keys %wanted, 'none');
    check('delete_multi', $deleted, { (map { ($_ => 1) } keys %wanted), none => '' });
    check('get_multi of what is deleted', scalar $client->get_multi(keys %wanted), {});
}

sub cas {
    my ($client) = @_;
    $client->set('c', 'first');
    my $seen = $client->gets('c');
    check('gets', $seen->[1], 'first');
    check('gets miss', scalar $client->gets('none'), undef);
    check('cas', scalar $client->cas('c', $seen->[0], 'second'), 1);
    check('cas again', scalar $client->cas('c', $seen->[0], 'third'), '');
    check('get after cas', scalar $client->get('c'), 'second');
    check('cas miss', scalar $client->cas('none', $seen->[0], 'x'), '');
}

sub counting {
    my ($client) = @_;
    $client->set('i', 10);
    check('incr', scalar $client->incr('i'), 11);
    check('incr by', scalar $client->incr('i', 31), 42);
    check('decr', scalar $client->decr('i', 2), 40);
    check('decr below zero', scalar $client->decr('i', 100), '0E0');
    check('incr miss', scalar $client->incr('none'), '');
    check('decr miss', scalar $client->decr('none'), '');
    $client->set('j', 5);
    check('incr_multi', scalar $client->incr_multi(['i', 3], ['j', 4], 'none'), { i => 3, j => 9, none => '' });
    check('decr_multi', scalar $client->decr_multi(['i', 1], 'j'), { i => 2, j => 8 });
    $client->set('text', 'x');
    check('incr of text', scalar $client->incr('text'), undef);
    check('after an error', scalar $client->incr('i'), 3);
}

sub expiry {
    my ($client) = @_;
    $client->set($_, $_, 2) for qw(t u v);
    $client->set('w', 'w', time + 100);
    check('touch', scalar $client->touch('u', 100), 1);
    check('touch miss', scalar $client->touch('none', 100), '');
    check('gat', scalar $client->gat(100, 'v'), 'v');
    check('gat miss', scalar $client->gat(100, 'none'), undef);
    check('gat_multi', scalar $client->gat_multi(100, 'v', 'none'), { v => 'v' });
    my $seen = $client->gats(100, 'v');
    check('gats', $seen->[1], 'v');
    check('cas of gats', scalar $client->cas('v', $seen->[0], 'v', 100), 1);
    select undef, undef, undef, 3.2;
    check('what is expired and what is not', scalar $client->get_multi(qw(t u v w)), { u => 'u', v => 'v', w => 'w' });
}

# In void context this client asks for no answer; a get on the same connection comes after all of it.
sub without_reply {
    my ($client) = @_;
    $client->set("n$_", $_) for 0 .. 999;
    $client->add('n1', 'not this');
    $client->append('n2', '+');
    $client->prepend('n2', '-');
    $client->replace('n3', 'other');
    $client->incr('n4', 10);
    $client->decr('n5', 1);
    $client->delete('n6');
    $client->touch('n7', 100);
    $client->nowait_push;
    my $seen = $client->get_multi(map { "n$_" } 0 .. 999);
    check('how many came without a reply', scalar keys %$seen, 999);
    check('what orders without a reply did', [@$seen{qw(n1 n2 n3 n4 n5 n7)}], [1, '-2+', 'other', 14, 4, 7]);
}

sub whole_server {
    my ($client) = @_;
    check('server_versions', scalar $client->server_versions->{"$host:$port"} =~ /\d+\.\d+/, 1);
    $client->namespace('space:');
    check('set in a namespace', scalar $client->set('key', 1), 1);
    check('the namespace', scalar $client->namespace(''), 'space:');
    check('get of a namespace', scalar $client->get('space:key'), 1);
    check('flush_all', scalar $client->flush_all, { "$host:$port" => 1 });
    check('get flushed', scalar $client->get('space:key'), undef);
    $client->disconnect_all;
    check('set on a new connection', scalar $client->set('f', 1), 1);
}

my $client = connected();
$client->flush_all;
storage($client);
many($client);
cas($client);
counting($client);
expiry($client);
without_reply($client);
without_reply(connected(nowait => 1));
whole_server($client);
print "perl: all well\n";
