"""What people see: words, numbers, tables, charts and pages, drawn from values and never computed here."""
