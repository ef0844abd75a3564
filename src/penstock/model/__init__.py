"""The words of Penstock: names, settings, records, limits and errors; nothing here knows how a broker works."""
