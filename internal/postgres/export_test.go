package postgres

// MigrateFS is Migrate with migrations of the test's own.
var MigrateFS = migrate

// MigrationLease is how long a dead migrator is waited for.
const MigrationLease = migrationLease
