package store

// MigrateDown takes every migration back.
var MigrateDown = migrateDown
