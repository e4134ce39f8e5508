CREATE TABLE alembic_version (
version_num VARCHAR(32) NOT NULL,
CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)

CREATE TABLE owners (
id INTEGER NOT NULL,
name VARCHAR(39) NOT NULL,
skeleton VARCHAR(39) NOT NULL,
created_at DATETIME NOT NULL, retired_at DATETIME,
PRIMARY KEY (id),
UNIQUE (name),
UNIQUE (skeleton)
)

CREATE TABLE publisher_keys (
owner_id INTEGER NOT NULL,
"key" VARCHAR(60) NOT NULL,
added_at DATETIME NOT NULL,
PRIMARY KEY (owner_id, "key"),
FOREIGN KEY(owner_id) REFERENCES owners (id)
)

CREATE TABLE packages (
id INTEGER NOT NULL,
owner_id INTEGER NOT NULL,
owner VARCHAR(39) NOT NULL,
name VARCHAR(60) NOT NULL,
skeleton VARCHAR(60) NOT NULL,
distribution VARCHAR(100) NOT NULL,
latest VARCHAR(60) NOT NULL,
summary TEXT NOT NULL,
created_at DATETIME NOT NULL,
updated_at DATETIME NOT NULL, private BOOLEAN DEFAULT 0 NOT NULL,
PRIMARY KEY (id),
UNIQUE (owner_id, name),
UNIQUE (owner_id, skeleton),
FOREIGN KEY(owner_id) REFERENCES owners (id),
UNIQUE (distribution)
)

CREATE TABLE maintainers (
package_id INTEGER NOT NULL,
principal VARCHAR(100) NOT NULL,
PRIMARY KEY (package_id, principal),
FOREIGN KEY(package_id) REFERENCES packages (id)
)

CREATE TABLE package_tags (
tag VARCHAR(60) NOT NULL,
package_id INTEGER NOT NULL,
PRIMARY KEY (tag, package_id),
FOREIGN KEY(package_id) REFERENCES packages (id)
)

CREATE TABLE versions (
id INTEGER NOT NULL,
package_id INTEGER NOT NULL,
version VARCHAR(60) NOT NULL,
filename VARCHAR(255) NOT NULL,
sha256 VARCHAR(64) NOT NULL,
size BIGINT NOT NULL,
metadata_sha256 VARCHAR(64) NOT NULL,
requires_python VARCHAR(200),
manifest TEXT NOT NULL,
card TEXT NOT NULL,
signed TEXT,
validation TEXT,
uploaded_by VARCHAR(100) NOT NULL,
uploaded_at DATETIME NOT NULL,
yanked VARCHAR(500), changed_at DATETIME DEFAULT '1970-01-01 00:00:00.000000' NOT NULL, identity VARCHAR(60),
PRIMARY KEY (id),
UNIQUE (package_id, version),
FOREIGN KEY(package_id) REFERENCES packages (id),
UNIQUE (filename)
)

CREATE VIRTUAL TABLE package_search USING fts5(name, tags, description, body, tokenize='unicode61', prefix='2 3')

CREATE TABLE readers (
package_id INTEGER NOT NULL,
principal VARCHAR(100) NOT NULL,
PRIMARY KEY (package_id, principal),
FOREIGN KEY(package_id) REFERENCES packages (id)
)

CREATE TABLE accounts (
id INTEGER NOT NULL,
owner_id INTEGER NOT NULL,
name VARCHAR(39) NOT NULL,
password VARCHAR(200) NOT NULL,
is_admin BOOLEAN NOT NULL,
created_at DATETIME NOT NULL,
disabled_at DATETIME,
PRIMARY KEY (id),
UNIQUE (owner_id),
FOREIGN KEY(owner_id) REFERENCES owners (id),
UNIQUE (name)
)

CREATE TABLE account_sessions (
digest VARCHAR(64) NOT NULL,
account_id INTEGER NOT NULL,
browser VARCHAR(100) NOT NULL,
created_at DATETIME NOT NULL,
used_at DATETIME NOT NULL, confirmed_at DATETIME,
PRIMARY KEY (digest),
FOREIGN KEY(account_id) REFERENCES accounts (id)
)

CREATE TABLE access_tokens (
id INTEGER NOT NULL,
account_id INTEGER NOT NULL,
name VARCHAR(60) NOT NULL,
digest VARCHAR(64) NOT NULL,
scopes VARCHAR(200) NOT NULL,
packages TEXT NOT NULL,
created_at DATETIME NOT NULL,
expires_at DATETIME,
used_at DATETIME,
PRIMARY KEY (id),
FOREIGN KEY(account_id) REFERENCES accounts (id),
UNIQUE (digest)
)

CREATE TABLE invitations (
digest VARCHAR(64) NOT NULL,
created_by VARCHAR(100) NOT NULL,
expires_at DATETIME NOT NULL,
PRIMARY KEY (digest)
)

CREATE TABLE audit_events (
id INTEGER NOT NULL,
at DATETIME NOT NULL,
actor VARCHAR(100) NOT NULL,
action VARCHAR(40) NOT NULL,
subject VARCHAR(200) NOT NULL,
account VARCHAR(100) NOT NULL,
address VARCHAR(64) NOT NULL,
PRIMARY KEY (id)
)

CREATE TABLE result_boards (
id INTEGER NOT NULL,
package VARCHAR(100) NOT NULL,
version VARCHAR(60) NOT NULL,
sha256 VARCHAR(64) NOT NULL,
environment VARCHAR(300) NOT NULL,
split VARCHAR(300) NOT NULL,
level VARCHAR(10) NOT NULL,
lowest FLOAT,
highest FLOAT,
tasks TEXT NOT NULL,
difficulty TEXT NOT NULL,
PRIMARY KEY (id),
UNIQUE (package, version, environment, split, level)
)

CREATE TABLE result_lines (
id INTEGER NOT NULL,
board_id INTEGER NOT NULL,
principal VARCHAR(100) NOT NULL,
model VARCHAR(200) NOT NULL,
harness VARCHAR(200) NOT NULL,
mean FLOAT NOT NULL,
document TEXT NOT NULL,
PRIMARY KEY (id),
UNIQUE (board_id, principal, model, harness),
FOREIGN KEY(board_id) REFERENCES result_boards (id)
)

CREATE TABLE result_runs (
id INTEGER NOT NULL,
"key" VARCHAR(22) NOT NULL,
board_id INTEGER NOT NULL,
principal VARCHAR(100) NOT NULL,
by_publisher BOOLEAN NOT NULL,
number INTEGER NOT NULL,
model VARCHAR(200) NOT NULL,
harness VARCHAR(200) NOT NULL,
declared TEXT NOT NULL,
tasks INTEGER NOT NULL,
samples INTEGER NOT NULL,
success_at FLOAT NOT NULL,
lowest FLOAT,
highest FLOAT,
state VARCHAR(10) NOT NULL,
created_at DATETIME NOT NULL,
deadline DATETIME,
ended_at DATETIME,
commitment VARCHAR(64),
opening TEXT,
digest VARCHAR(64),
reruns INTEGER NOT NULL,
figures TEXT,
per_task TEXT,
receipt TEXT,
removed_at DATETIME,
removed_by VARCHAR(100),
removed_reason VARCHAR(500),
rollouts VARCHAR(64),
PRIMARY KEY (id),
UNIQUE (board_id, principal, number),
UNIQUE (board_id, digest),
UNIQUE ("key"),
FOREIGN KEY(board_id) REFERENCES result_boards (id)
)

CREATE TABLE result_episodes (
run_id INTEGER NOT NULL,
place INTEGER NOT NULL,
task VARCHAR(1000) NOT NULL,
task_index INTEGER NOT NULL,
sample INTEGER NOT NULL,
seed INTEGER,
state VARCHAR(10) NOT NULL,
attempts INTEGER NOT NULL,
reward FLOAT,
value FLOAT,
"end" VARCHAR(100),
steps INTEGER,
started_at DATETIME,
ended_at DATETIME,
input_tokens INTEGER,
output_tokens INTEGER, process VARCHAR(32),
PRIMARY KEY (run_id, place),
FOREIGN KEY(run_id) REFERENCES result_runs (id)
)

CREATE TABLE result_log (
id INTEGER NOT NULL,
at DATETIME NOT NULL,
kind VARCHAR(10) NOT NULL,
run_id INTEGER NOT NULL,
"by" VARCHAR(100) NOT NULL,
reason VARCHAR(500) NOT NULL,
"before" FLOAT,
"after" FLOAT,
PRIMARY KEY (id),
FOREIGN KEY(run_id) REFERENCES result_runs (id)
)

CREATE TABLE organizations (
id INTEGER NOT NULL,
owner_id INTEGER NOT NULL,
name VARCHAR(39) NOT NULL,
public BOOLEAN NOT NULL,
created_at DATETIME NOT NULL,
PRIMARY KEY (id),
UNIQUE (owner_id),
FOREIGN KEY(owner_id) REFERENCES owners (id),
UNIQUE (name)
)

CREATE TABLE organization_members (
organization_id INTEGER NOT NULL,
account_id INTEGER NOT NULL,
role VARCHAR(10) NOT NULL,
joined_at DATETIME NOT NULL,
PRIMARY KEY (organization_id, account_id),
FOREIGN KEY(organization_id) REFERENCES organizations (id),
FOREIGN KEY(account_id) REFERENCES accounts (id)
)

CREATE TABLE organization_invitations (
organization_id INTEGER NOT NULL,
name VARCHAR(39) NOT NULL,
account_id INTEGER,
role VARCHAR(10) NOT NULL,
invited_by VARCHAR(100) NOT NULL,
expires_at DATETIME NOT NULL,
PRIMARY KEY (organization_id, name),
FOREIGN KEY(organization_id) REFERENCES organizations (id),
FOREIGN KEY(account_id) REFERENCES accounts (id)
)

CREATE TABLE account_identities (
id INTEGER NOT NULL,
account_id INTEGER NOT NULL,
issuer VARCHAR(300) NOT NULL,
subject VARCHAR(255) NOT NULL,
email VARCHAR(254) NOT NULL,
gave_admin BOOLEAN NOT NULL,
linked_at DATETIME NOT NULL,
used_at DATETIME NOT NULL,
PRIMARY KEY (id),
UNIQUE (issuer, subject),
FOREIGN KEY(account_id) REFERENCES accounts (id)
)

CREATE TABLE pending_sign_ins (
digest VARCHAR(64) NOT NULL,
browser VARCHAR(64) NOT NULL,
purpose VARCHAR(20) NOT NULL,
account_id INTEGER,
document TEXT NOT NULL,
expires_at DATETIME NOT NULL,
PRIMARY KEY (digest),
FOREIGN KEY(account_id) REFERENCES accounts (id)
)

CREATE TABLE hub_processes (
id VARCHAR(32) NOT NULL,
expires_at FLOAT NOT NULL, address VARCHAR(300),
PRIMARY KEY (id)
)

CREATE TABLE rate_counts (
"key" VARCHAR(40) NOT NULL,
period BIGINT NOT NULL,
count INTEGER NOT NULL,
expires_at FLOAT NOT NULL,
PRIMARY KEY ("key", period)
)

CREATE TABLE device_sign_ins (
digest VARCHAR(64) NOT NULL,
code_digest VARCHAR(64) NOT NULL,
account_id INTEGER,
state VARCHAR(20) NOT NULL,
document TEXT NOT NULL,
address VARCHAR(64) NOT NULL,
created_at DATETIME NOT NULL,
expires_at DATETIME NOT NULL,
asked_at DATETIME,
PRIMARY KEY (digest),
UNIQUE (code_digest),
FOREIGN KEY(account_id) REFERENCES accounts (id)
)

CREATE TABLE kept_rollouts (
id VARCHAR(16) NOT NULL,
owner VARCHAR(100) NOT NULL,
name VARCHAR(80) NOT NULL,
size INTEGER NOT NULL,
lines INTEGER NOT NULL,
"index" BLOB NOT NULL,
kept_at DATETIME NOT NULL,
PRIMARY KEY (id)
)

CREATE TABLE kept_rollout_parts (
file_id VARCHAR(16) NOT NULL,
number INTEGER NOT NULL,
data BLOB NOT NULL,
PRIMARY KEY (file_id, number),
FOREIGN KEY(file_id) REFERENCES kept_rollouts (id)
)

CREATE TABLE blocked_wheels (
sha256 VARCHAR(64) NOT NULL,
reason VARCHAR(500) NOT NULL,
blocked_by VARCHAR(100) NOT NULL,
blocked_at DATETIME NOT NULL,
PRIMARY KEY (sha256)
)

CREATE INDEX ix_access_tokens_account_id ON access_tokens (account_id)

CREATE INDEX ix_account_identities_account_id ON account_identities (account_id)

CREATE INDEX ix_account_sessions_account_id ON account_sessions (account_id)

CREATE INDEX ix_audit_events_account ON audit_events (account)

CREATE INDEX ix_audit_events_actor ON audit_events (actor)

CREATE INDEX ix_device_sign_ins_account_id ON device_sign_ins (account_id)

CREATE INDEX ix_device_sign_ins_expires_at ON device_sign_ins (expires_at)

CREATE INDEX ix_kept_rollouts_owner ON kept_rollouts (owner, kept_at)

CREATE INDEX ix_organization_invitations_account_id ON organization_invitations (account_id)

CREATE INDEX ix_organization_members_account_id ON organization_members (account_id)

CREATE INDEX ix_package_tags_package_id ON package_tags (package_id)

CREATE INDEX ix_packages_catalog ON packages (updated_at, id, private)

CREATE INDEX ix_packages_owner ON packages (owner)

CREATE INDEX ix_packages_private ON packages (id) WHERE private = 1

CREATE INDEX ix_pending_sign_ins_account_id ON pending_sign_ins (account_id)

CREATE INDEX ix_pending_sign_ins_expires_at ON pending_sign_ins (expires_at)

CREATE INDEX ix_rate_counts_expires_at ON rate_counts (expires_at)

CREATE INDEX ix_result_lines_mean ON result_lines (board_id, mean)

CREATE INDEX ix_result_runs_principal ON result_runs (principal, state)

CREATE INDEX ix_result_runs_state ON result_runs (state, deadline)

CREATE INDEX ix_versions_changed_at ON versions (changed_at)

CREATE UNIQUE INDEX ix_versions_identity ON versions (package_id, identity)

CREATE INDEX ix_versions_sha256 ON versions (sha256)

INSERT INTO alembic_version (version_num) VALUES ('0019')
