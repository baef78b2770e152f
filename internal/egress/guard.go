// Package egress is the way out of the host for requests whose target a
// stranger chose. It refuses addresses that are not public, at the moment of
// dialling, so that no name can resolve to one address for the check and to
// another for the connection. On top of that, Host answers the fetches of
// hooks by the app's allow-list.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// ErrPrivateAddress says that a name or address leads to the host's own
// network.
var ErrPrivateAddress = errors.New("the address is not public")

// NewClient makes a client that reaches public addresses only, or any when
// allowPrivate is set. It follows no redirects, knows no proxy, and gives up
// after timeout (0: never).
func NewClient(allowPrivate bool, timeout time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if !allowPrivate {
		dialer.ControlContext = refusePrivate
	}
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           200,
			MaxIdleConnsPerHost:    16,
			IdleConnTimeout:        60 * time.Second,
			TLSHandshakeTimeout:    10 * time.Second,
			ExpectContinueTimeout:  time.Second,
			MaxResponseHeaderBytes: 256 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// refusePrivate is called with the address that is about to be connected to.
func refusePrivate(_ context.Context, network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: network %s", ErrPrivateAddress, network)
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrPrivateAddress, address)
	}
	if !Public(target.Addr()) {
		return fmt.Errorf("%w: %s", ErrPrivateAddress, target.Addr())
	}
	return nil
}

// Public reports whether an address belongs to the public Internet. An
// address that wraps an IPv4 one is as public as what it wraps.
func Public(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if a.Is4() {
		return !inAny(a, reserved4())
	}
	if inner, ok := wrapped(a); ok {
		return Public(inner)
	}
	// All that is assigned for the public is in 2000::/3.
	return netip.MustParsePrefix("2000::/3").Contains(a) && !inAny(a, reserved6())
}

// wrapped is the IPv4 address inside a NAT64 or 6to4 address.
func wrapped(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

func inAny(a netip.Addr, prefixes []string) bool {
	for _, p := range prefixes {
		if netip.MustParsePrefix(p).Contains(a) {
			return true
		}
	}
	return false
}

// reserved4 lists the IPv4 ranges of RFC 6890 and its updates that are not
// for the public, and one cloud's metadata service on a public address.
func reserved4() []string {
	return []string{
		"0.0.0.0/8",        // this network
		"10.0.0.0/8",       // private
		"100.64.0.0/10",    // carrier-grade NAT
		"127.0.0.0/8",      // loopback
		"168.63.129.16/32", // Azure's host services
		"169.254.0.0/16",   // link-local, and most metadata services
		"172.16.0.0/12",    // private
		"192.0.0.0/24",     // protocol assignments
		"192.0.2.0/24",     // documentation
		"192.88.99.0/24",   // 6to4 relays
		"192.168.0.0/16",   // private
		"198.18.0.0/15",    // benchmarks
		"198.51.100.0/24",  // documentation
		"203.0.113.0/24",   // documentation
		"224.0.0.0/4",      // multicast
		"240.0.0.0/4",      // reserved, and broadcast
	}
}

// reserved6 lists what is not public inside 2000::/3.
func reserved6() []string {
	return []string{
		"2001::/23",     // protocol assignments; Teredo is among them
		"2001:db8::/32", // documentation
		"3fff::/20",     // documentation
	}
}
