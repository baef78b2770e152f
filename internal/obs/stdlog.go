package obs

import (
	"bytes"
	"log"

	"go.uber.org/zap"
)

// errorLog takes what net/http says of single connections: news of strangers,
// for debugging only.
func errorLog(to *zap.Logger, listener string) *log.Logger {
	return log.New(lineWriter{to.With(zap.String("listener", listener))}, "", 0)
}

type lineWriter struct{ log *zap.Logger }

func (w lineWriter) Write(line []byte) (int, error) {
	w.log.Debug("http.connection", zap.ByteString(KeyError, bytes.TrimSpace(line)))
	return len(line), nil
}
