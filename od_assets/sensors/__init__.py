"""Release periods by schedules and when files arrive, and give notice of publications and failures."""
