package trigger

// Page asks for one page of a list, newest first.
type Page struct {
	Limit  int    // 1–200; 0 means 50
	Cursor string // opaque, from the page before; "" is the first page
}

// Page sizes.
const (
	DefaultPage = 50
	MaxPage     = 200
)

// Size gives the limit within its bounds.
func (p Page) Size() int {
	switch {
	case p.Limit <= 0:
		return DefaultPage
	case p.Limit > MaxPage:
		return MaxPage
	}
	return p.Limit
}
