// Every operation of gomemcache against the server at HOST PORT. Exits with 1 at the first surprise.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func main() {
	client := memcache.New(net.JoinHostPort(os.Args[1], os.Args[2]))
	client.Timeout = 10 * time.Second
	client.MaxIdleConns = 16
	if authority := os.Getenv("TLS_CA"); authority != "" {
		client.DialContext = encrypted(authority)
	}
	storage(client)
	compareAndSwap(client)
	counting(client)
	many(client)
	times(client)
	crowd(client)
	wholeServer(client)
	fmt.Println("gomemcache: all well")
}

// encrypted opens connections over TLS, with a certificate of the client's if the environment names one.
func encrypted(authority string) func(context.Context, string, string) (net.Conn, error) {
	pem, err := os.ReadFile(authority)
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: os.Args[1]}
	if err != nil || !config.RootCAs.AppendCertsFromPEM(pem) {
		fmt.Println("gomemcache: no authority in", authority, err)
		os.Exit(1)
	}
	if name := os.Getenv("TLS_CERTIFICATE"); name != "" {
		own, err := tls.LoadX509KeyPair(name, os.Getenv("TLS_KEY"))
		if err != nil {
			fmt.Println("gomemcache:", err)
			os.Exit(1)
		}
		config.Certificates = []tls.Certificate{own}
	}
	dialer := &tls.Dialer{Config: config}
	return dialer.DialContext
}

func storage(client *memcache.Client) {
	item := &memcache.Item{Key: "s", Value: []byte("value"), Flags: 4294967295}
	wants("set", client.Set(item), nil)
	got, err := client.Get("s")
	wants("get", err, nil)
	holds("get", bytes.Equal(got.Value, item.Value) && got.Flags == item.Flags)
	_, err = client.Get("none")
	wants("get miss", err, memcache.ErrCacheMiss)
	wants("add", client.Add(item), memcache.ErrNotStored)
	wants("add new", client.Add(&memcache.Item{Key: "added", Value: []byte("x")}), nil)
	wants("replace", client.Replace(&memcache.Item{Key: "s", Value: []byte("other")}), nil)
	wants("replace miss", client.Replace(&memcache.Item{Key: "none", Value: []byte("x")}), memcache.ErrNotStored)
	wants("append", client.Append(&memcache.Item{Key: "s", Value: []byte("+")}), nil)
	wants("prepend", client.Prepend(&memcache.Item{Key: "s", Value: []byte("-")}), nil)
	wants("append miss", client.Append(&memcache.Item{Key: "none", Value: []byte("+")}), memcache.ErrNotStored)
	got, err = client.Get("s")
	wants("get joined", err, nil)
	holds("get joined", string(got.Value) == "-other+")
	wants("delete", client.Delete("s"), nil)
	wants("delete miss", client.Delete("s"), memcache.ErrCacheMiss)
	large := bytes.Repeat([]byte("0123456789"), 100_000)
	wants("set large", client.Set(&memcache.Item{Key: "large", Value: large}), nil)
	got, err = client.Get("large")
	wants("get large", err, nil)
	holds("get large", bytes.Equal(got.Value, large))
	wants("a key too long", client.Set(&memcache.Item{Key: string(bytes.Repeat([]byte("k"), 251))}), memcache.ErrMalformedKey)
	tooLarge := client.Set(&memcache.Item{Key: "toolarge", Value: bytes.Repeat(large, 2)})
	holds("too large", tooLarge != nil)
	wants("after an error", client.Set(item), nil)
}

func compareAndSwap(client *memcache.Client) {
	wants("set", client.Set(&memcache.Item{Key: "c", Value: []byte("1")}), nil)
	first, err := client.Get("c")
	wants("get", err, nil)
	second, err := client.Get("c")
	wants("get", err, nil)
	first.Value, second.Value = []byte("2"), []byte("3")
	wants("cas", client.CompareAndSwap(first), nil)
	wants("cas again", client.CompareAndSwap(second), memcache.ErrCASConflict)
	wants("delete", client.Delete("c"), nil)
	wants("cas miss", client.CompareAndSwap(second), memcache.ErrCacheMiss)
}

func counting(client *memcache.Client) {
	wants("set", client.Set(&memcache.Item{Key: "i", Value: []byte("10")}), nil)
	value, err := client.Increment("i", 5)
	holds("increment", err == nil && value == 15)
	value, err = client.Decrement("i", 20)
	holds("decrement", err == nil && value == 0)
	_, err = client.Increment("none", 1)
	wants("increment miss", err, memcache.ErrCacheMiss)
	wants("set", client.Set(&memcache.Item{Key: "i", Value: []byte("text")}), nil)
	_, err = client.Increment("i", 1)
	holds("increment of text", err != nil)
}

func many(client *memcache.Client) {
	var keys []string
	for number := 0; number < 500; number++ {
		key := fmt.Sprintf("many%d", number)
		keys = append(keys, key)
		wants("set", client.Set(&memcache.Item{Key: key, Value: []byte(key)}), nil)
	}
	found, err := client.GetMulti(append(keys, "none"))
	holds("get multi", err == nil && len(found) == len(keys))
	for key, item := range found {
		holds("get multi "+key, string(item.Value) == key)
	}
}

func times(client *memcache.Client) {
	wants("set", client.Set(&memcache.Item{Key: "t", Value: []byte("x"), Expiration: 2}), nil)
	wants("set", client.Set(&memcache.Item{Key: "u", Value: []byte("x"), Expiration: 2}), nil)
	wants("set", client.Set(&memcache.Item{Key: "v", Value: []byte("x"), Expiration: 2}), nil)
	wants("touch", client.Touch("u", 100), nil)
	wants("touch miss", client.Touch("none", 100), memcache.ErrCacheMiss)
	got, err := client.GetAndTouch("v", 100)
	holds("get and touch", err == nil && string(got.Value) == "x")
	_, err = client.GetAndTouch("none", 100)
	wants("get and touch miss", err, memcache.ErrCacheMiss)
	time.Sleep(3200 * time.Millisecond)
	_, err = client.Get("t")
	wants("expired", err, memcache.ErrCacheMiss)
	_, err = client.Get("u")
	wants("touched", err, nil)
	_, err = client.Get("v")
	wants("got and touched", err, nil)
}

// crowd has sixteen goroutines count one number: not one step may be lost.
func crowd(client *memcache.Client) {
	wants("set", client.Set(&memcache.Item{Key: "crowd", Value: []byte("0")}), nil)
	var group sync.WaitGroup
	for i := 0; i < 16; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 250; i++ {
				_, err := client.Increment("crowd", 1)
				wants("increment in a crowd", err, nil)
			}
		}()
	}
	group.Wait()
	value, err := client.Increment("crowd", 0)
	holds("a crowd's sum", err == nil && value == 4000)
}

func wholeServer(client *memcache.Client) {
	wants("ping", client.Ping(), nil)
	wants("flush all", client.FlushAll(), nil)
	_, err := client.Get("u")
	wants("get flushed", err, memcache.ErrCacheMiss)
	wants("set", client.Set(&memcache.Item{Key: "u", Value: []byte("x")}), nil)
	wants("delete all", client.DeleteAll(), nil)
	_, err = client.Get("u")
	wants("get deleted", err, memcache.ErrCacheMiss)
	wants("close", client.Close(), nil)
}

func wants(what string, got, wanted error) {
	if got != wanted {
		fmt.Printf("gomemcache: %s: got %v, wanted %v\n", what, got, wanted)
		os.Exit(1)
	}
}

func holds(what string, well bool) {
	if !well {
		fmt.Printf("gomemcache: %s: not as it should be\n", what)
		os.Exit(1)
	}
}
