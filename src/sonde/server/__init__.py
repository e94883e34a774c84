"""The HTTP server: run folders as JSON, binary columns and live events, and the page that shows them."""
