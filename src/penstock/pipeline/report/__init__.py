"""The report: one HTML file that tells from the tables how a broker and its workers have been doing."""
