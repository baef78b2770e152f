package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Request is a POST, ready to be sent. Callers keep one each, since a call's
// own id is written into it.
type Request struct {
	text []byte
	id   int // where the id lies; 0: none
}

// idDigits is how long an id is that differs from call to call.
const idDigits = 12

// NewRequest lays out a POST. A header value that ends in "*" gets a number of
// its own in every call.
func NewRequest(target string, body []byte, header ...string) (*Request, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	var head bytes.Buffer
	r := &Request{}
	fmt.Fprintf(&head, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", u.RequestURI(), u.Host, len(body))
	for i := 0; i+1 < len(header); i += 2 {
		value, own := strings.CutSuffix(header[i+1], "*")
		fmt.Fprintf(&head, "%s: %s", header[i], value)
		if own {
			r.id = head.Len()
			fmt.Fprintf(&head, "%0*d", idDigits, 0)
		}
		head.WriteString("\r\n")
	}
	head.WriteString("\r\n")
	head.Write(body)
	r.text = head.Bytes()
	return r, nil
}

// Clone is for another caller.
func (r *Request) Clone() *Request { return &Request{text: bytes.Clone(r.text), id: r.id} }

func (r *Request) number(i int) {
	if r.id == 0 {
		return
	}
	for at := r.id + idDigits - 1; at >= r.id; at-- {
		r.text[at] = byte('0' + i%10)
		i /= 10
	}
}

// Caller is one keep-alive connection: one request at a time, nothing
// pipelined.
type Caller struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte
}

// Dial connects.
func Dial(ctx context.Context, host string) (*Caller, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return &Caller{conn: conn, in: bufio.NewReaderSize(conn, 4096)}, nil
}

// Close lets go of the connection.
func (c *Caller) Close() { _ = c.conn.Close() }

// Post sends a request as its i-th and wants 200. The body is good until the
// next call.
func (c *Caller) Post(r *Request, i int) ([]byte, error) {
	r.number(i)
	if err := c.conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(r.text); err != nil {
		return nil, err
	}
	status, length, err := head(c.in)
	if err != nil {
		return nil, err
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return nil, err
	}
	if status != 200 {
		return nil, fmt.Errorf("answered with %d: %.200s", status, c.body)
	}
	return c.body, nil
}

var errHead = errors.New("not an HTTP/1.1 answer with a Content-Length")

// head reads the head of a request or an answer: the number in its first line,
// and the length of its body.
func head(in *bufio.Reader) (number, length int, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if bytes.HasPrefix(line, []byte("HTTP/1.1 ")) && len(line) > 12 {
		number = int(line[9]-'0')*100 + int(line[10]-'0')*10 + int(line[11]-'0')
	}
	for {
		line, err = in.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		if len(line) <= 2 {
			return number, length, nil
		}
		const name = "content-length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return 0, 0, errHead
			}
		}
	}
}

// Callers are many connections to one host.
type Callers []*Caller

// DialMany connects n times.
func DialMany(ctx context.Context, target string, n int) (Callers, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	list := make(Callers, n)
	for i := range list {
		if list[i], err = Dial(ctx, u.Host); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Close lets go of all.
func (l Callers) Close() {
	for _, c := range l {
		if c != nil {
			c.Close()
		}
	}
}
