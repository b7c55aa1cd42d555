"""Heavy tests, for `make test-full`: real data, training to accuracy, a browser, a fresh clone."""
