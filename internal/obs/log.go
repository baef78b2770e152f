// Package obs is how Tocsin is watched: zap logs with one vocabulary of keys,
// Prometheus metrics on a registry of their own, health endpoints, and the HTTP
// server loop that ties health to shutdown. It knows nothing of triggers,
// storage or engines.
package obs

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LogConfig says how log lines look and whose they are.
type LogConfig struct {
	Level    string // debug, info, warn or error
	Format   string // json or console
	Service  string // ingest, dispatcher
	Instance string // from Instance
}

// NewLogger makes the logger of a process. Programs give it standard output:
// the log is what a service has to say, one JSON object a line, and standard
// error is left to what comes before logging and to crashes. Nothing is
// sampled, since each line stands for a call, an attempt or a change.
func NewLogger(out io.Writer, c LogConfig) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(c.Level)
	if err != nil {
		return nil, fmt.Errorf("read the log level: %w", err)
	}
	encoding := zapcore.EncoderConfig{
		TimeKey:        "time",
		LevelKey:       "level",
		MessageKey:     "msg",
		StacktraceKey:  "stack",
		LineEnding:     zapcore.DefaultLineEnding,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeTime:     encodeTime,
		EncodeDuration: zapcore.MillisDurationEncoder,
	}
	encoder := zapcore.NewJSONEncoder(encoding)
	if c.Format == "console" {
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(out)), level)
	return zap.New(core, zap.ErrorOutput(zapcore.Lock(os.Stderr))).With(
		zap.String(KeyService, c.Service), zap.String(KeyInstance, c.Instance),
	), nil
}

// encodeTime writes ISO 8601 with milliseconds in UTC, as the API does.
func encodeTime(t time.Time, out zapcore.PrimitiveArrayEncoder) {
	out.AppendString(t.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// Instance names this process among its replicas, across restarts of a pod.
func Instance() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return host + "-" + strings.ToLower(rand.Text()[:6])
}

// Version is the version this binary was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && (version == "" || version == "(devel)") {
			return setting.Value
		}
	}
	if version == "" || version == "(devel)" {
		return "devel"
	}
	return version
}

// Sampled is a logger for what strangers or an outage can cause many times a
// second: of each message, one line a second.
func Sampled(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 1, 0)
	}))
}
