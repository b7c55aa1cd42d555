"""What people see: words, numbers, tables, charts and pages. Values come in; none is computed."""
