-- The database of a hub, written by tests/support/landed_hub.py.
-- commit: 8448a83aaf52ac7219d9cdc10bc2307edca8d050
-- revision: 0014

BEGIN;
CREATE TABLE alembic_version (
version_num VARCHAR(32) NOT NULL,
CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE owners (
id INTEGER NOT NULL,
name VARCHAR(39) NOT NULL,
skeleton VARCHAR(39) NOT NULL,
created_at DATETIME NOT NULL, retired_at DATETIME,
PRIMARY KEY (id),
UNIQUE (name),
UNIQUE (skeleton)
);
CREATE TABLE publisher_keys (
owner_id INTEGER NOT NULL,
"key" VARCHAR(60) NOT NULL,
added_at DATETIME NOT NULL,
PRIMARY KEY (owner_id, "key"),
FOREIGN KEY(owner_id) REFERENCES owners (id)
);
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
);
CREATE TABLE maintainers (
package_id INTEGER NOT NULL,
principal VARCHAR(100) NOT NULL,
PRIMARY KEY (package_id, principal),
FOREIGN KEY(package_id) REFERENCES packages (id)
);
CREATE TABLE package_tags (
tag VARCHAR(60) NOT NULL,
package_id INTEGER NOT NULL,
PRIMARY KEY (tag, package_id),
FOREIGN KEY(package_id) REFERENCES packages (id)
);
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
yanked VARCHAR(500), changed_at DATETIME DEFAULT '1970-01-01 00:00:00.000000' NOT NULL,
PRIMARY KEY (id),
UNIQUE (package_id, version),
FOREIGN KEY(package_id) REFERENCES packages (id),
UNIQUE (filename)
);
CREATE VIRTUAL TABLE package_search USING fts5(name, tags, description, body, tokenize='unicode61', prefix='2 3');
CREATE TABLE readers (
package_id INTEGER NOT NULL,
principal VARCHAR(100) NOT NULL,
PRIMARY KEY (package_id, principal),
FOREIGN KEY(package_id) REFERENCES packages (id)
);
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
);
CREATE TABLE account_sessions (
digest VARCHAR(64) NOT NULL,
account_id INTEGER NOT NULL,
browser VARCHAR(100) NOT NULL,
created_at DATETIME NOT NULL,
used_at DATETIME NOT NULL, confirmed_at DATETIME,
PRIMARY KEY (digest),
FOREIGN KEY(account_id) REFERENCES accounts (id)
);
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
);
CREATE TABLE invitations (
digest VARCHAR(64) NOT NULL,
created_by VARCHAR(100) NOT NULL,
expires_at DATETIME NOT NULL,
PRIMARY KEY (digest)
);
CREATE TABLE audit_events (
id INTEGER NOT NULL,
at DATETIME NOT NULL,
actor VARCHAR(100) NOT NULL,
action VARCHAR(40) NOT NULL,
subject VARCHAR(200) NOT NULL,
account VARCHAR(100) NOT NULL,
address VARCHAR(64) NOT NULL,
PRIMARY KEY (id)
);
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
);
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
);
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
);
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
);
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
);
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
);
CREATE TABLE organization_members (
organization_id INTEGER NOT NULL,
account_id INTEGER NOT NULL,
role VARCHAR(10) NOT NULL,
joined_at DATETIME NOT NULL,
PRIMARY KEY (organization_id, account_id),
FOREIGN KEY(organization_id) REFERENCES organizations (id),
FOREIGN KEY(account_id) REFERENCES accounts (id)
);
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
);
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
);
CREATE TABLE pending_sign_ins (
digest VARCHAR(64) NOT NULL,
browser VARCHAR(64) NOT NULL,
purpose VARCHAR(20) NOT NULL,
account_id INTEGER,
document TEXT NOT NULL,
expires_at DATETIME NOT NULL,
PRIMARY KEY (digest),
FOREIGN KEY(account_id) REFERENCES accounts (id)
);
CREATE TABLE hub_processes (
id VARCHAR(32) NOT NULL,
expires_at FLOAT NOT NULL, address VARCHAR(300),
PRIMARY KEY (id)
);
CREATE TABLE rate_counts (
"key" VARCHAR(40) NOT NULL,
period BIGINT NOT NULL,
count INTEGER NOT NULL,
expires_at FLOAT NOT NULL,
PRIMARY KEY ("key", period)
);
CREATE TABLE training_runs (
id INTEGER NOT NULL,
"key" VARCHAR(22) NOT NULL,
principal VARCHAR(100) NOT NULL,
sender_key VARCHAR(100) NOT NULL,
name VARCHAR(120) NOT NULL,
public BOOLEAN NOT NULL,
trainer VARCHAR(120) NOT NULL,
config TEXT NOT NULL,
environments TEXT NOT NULL,
steps INTEGER,
state VARCHAR(10) NOT NULL,
reason VARCHAR(500) NOT NULL,
attempt VARCHAR(100) NOT NULL,
attempts TEXT NOT NULL,
next_batch INTEGER NOT NULL,
points INTEGER NOT NULL,
"values" INTEGER NOT NULL,
size INTEGER NOT NULL,
metrics TEXT NOT NULL,
last_step INTEGER,
dropped INTEGER NOT NULL,
rollouts INTEGER NOT NULL,
created_at DATETIME NOT NULL,
heard_at DATETIME NOT NULL,
ended_at DATETIME,
summary BLOB,
summary_upto INTEGER NOT NULL,
summary_values INTEGER NOT NULL,
PRIMARY KEY (id),
UNIQUE (principal, sender_key),
UNIQUE ("key")
);
CREATE TABLE training_batches (
run_id INTEGER NOT NULL,
number INTEGER NOT NULL,
attempt INTEGER NOT NULL,
digest VARCHAR(64) NOT NULL,
points INTEGER NOT NULL,
data BLOB NOT NULL,
PRIMARY KEY (run_id, number),
FOREIGN KEY(run_id) REFERENCES training_runs (id)
);
CREATE TABLE training_rollouts (
run_id INTEGER NOT NULL,
number INTEGER NOT NULL,
digest VARCHAR(64) NOT NULL,
step INTEGER NOT NULL,
environment VARCHAR(100) NOT NULL,
task VARCHAR(100) NOT NULL,
reward VARCHAR(80) NOT NULL,
outcome VARCHAR(60) NOT NULL,
data BLOB NOT NULL,
PRIMARY KEY (run_id, number),
UNIQUE (run_id, digest),
FOREIGN KEY(run_id) REFERENCES training_runs (id)
);
CREATE TABLE verified_runs (
run_id INTEGER NOT NULL,
harness VARCHAR(300) NOT NULL,
harness_sha256 VARCHAR(64) NOT NULL,
host VARCHAR(300) NOT NULL,
model VARCHAR(200) NOT NULL,
base_url VARCHAR(1000),
sealed TEXT,
most_tokens INTEGER NOT NULL, process VARCHAR(32),
PRIMARY KEY (run_id),
FOREIGN KEY(run_id) REFERENCES result_runs (id)
);
CREATE TABLE verified_calls (
run_id INTEGER NOT NULL,
place INTEGER NOT NULL,
attempt INTEGER NOT NULL,
number INTEGER NOT NULL,
request VARCHAR(64) NOT NULL,
answer VARCHAR(64) NOT NULL,
status INTEGER NOT NULL,
input_tokens INTEGER,
output_tokens INTEGER,
PRIMARY KEY (run_id, place, attempt, number),
FOREIGN KEY(run_id) REFERENCES result_runs (id)
);
CREATE TABLE verified_attempts (
run_id INTEGER NOT NULL,
place INTEGER NOT NULL,
attempt INTEGER NOT NULL,
ending VARCHAR(500) NOT NULL,
output TEXT NOT NULL,
PRIMARY KEY (run_id, place, attempt),
FOREIGN KEY(run_id) REFERENCES result_runs (id)
);
CREATE TABLE match_boards (
id INTEGER NOT NULL,
package VARCHAR(100) NOT NULL,
version VARCHAR(60) NOT NULL,
sha256 VARCHAR(64) NOT NULL,
environment VARCHAR(300) NOT NULL,
split VARCHAR(300) NOT NULL,
seats TEXT NOT NULL,
numbers INTEGER NOT NULL,
changes INTEGER NOT NULL,
rated INTEGER NOT NULL,
seat_advantage FLOAT,
seat_low FLOAT,
seat_high FLOAT,
draw_share FLOAT, process VARCHAR(32),
PRIMARY KEY (id),
UNIQUE (package, version, environment, split)
);
CREATE TABLE match_entrants (
id INTEGER NOT NULL,
"key" VARCHAR(22) NOT NULL,
board_id INTEGER NOT NULL,
principal VARCHAR(100) NOT NULL,
by_publisher BOOLEAN NOT NULL,
is_script BOOLEAN NOT NULL,
model VARCHAR(200) NOT NULL,
harness VARCHAR(200) NOT NULL,
declared TEXT NOT NULL,
registered INTEGER NOT NULL,
state VARCHAR(10) NOT NULL,
voided INTEGER NOT NULL,
created_at DATETIME NOT NULL,
deadline DATETIME NOT NULL,
ended_at DATETIME,
rating FLOAT,
rating_low FLOAT,
rating_high FLOAT,
component INTEGER,
wins INTEGER NOT NULL,
draws INTEGER NOT NULL,
losses INTEGER NOT NULL,
removed_at DATETIME,
removed_by VARCHAR(100),
removed_reason VARCHAR(500),
still_counts BOOLEAN NOT NULL,
PRIMARY KEY (id),
UNIQUE (board_id, principal, model, harness),
UNIQUE ("key"),
FOREIGN KEY(board_id) REFERENCES match_boards (id)
);
CREATE TABLE matches (
id INTEGER NOT NULL,
"key" VARCHAR(22) NOT NULL,
board_id INTEGER NOT NULL,
number INTEGER NOT NULL,
first_id INTEGER NOT NULL,
second_id INTEGER NOT NULL,
state VARCHAR(10) NOT NULL,
process VARCHAR(32),
score FLOAT,
first_reward FLOAT,
second_reward FLOAT,
first_end VARCHAR(100),
second_end VARCHAR(100),
commitment VARCHAR(64) NOT NULL,
opening TEXT NOT NULL,
created_at DATETIME NOT NULL,
ended_at DATETIME,
PRIMARY KEY (id),
UNIQUE (board_id, number),
UNIQUE ("key"),
FOREIGN KEY(board_id) REFERENCES match_boards (id),
FOREIGN KEY(first_id) REFERENCES match_entrants (id),
FOREIGN KEY(second_id) REFERENCES match_entrants (id)
);
CREATE TABLE match_log (
id INTEGER NOT NULL,
at DATETIME NOT NULL,
entrant_id INTEGER NOT NULL,
"by" VARCHAR(100) NOT NULL,
reason VARCHAR(500) NOT NULL,
PRIMARY KEY (id),
FOREIGN KEY(entrant_id) REFERENCES match_entrants (id)
);
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
);
CREATE TABLE kept_rollouts (
id VARCHAR(16) NOT NULL,
owner VARCHAR(100) NOT NULL,
name VARCHAR(80) NOT NULL,
size INTEGER NOT NULL,
lines INTEGER NOT NULL,
"index" BLOB NOT NULL,
kept_at DATETIME NOT NULL,
PRIMARY KEY (id)
);
CREATE TABLE kept_rollout_parts (
file_id VARCHAR(16) NOT NULL,
number INTEGER NOT NULL,
data BLOB NOT NULL,
PRIMARY KEY (file_id, number),
FOREIGN KEY(file_id) REFERENCES kept_rollouts (id)
);
INSERT INTO "alembic_version" ("version_num") VALUES ('0014');
INSERT INTO "owners" ("id", "name", "skeleton", "created_at", "retired_at") VALUES (1, 'root', 'root', '2026-11-28 18:56:44.835409', NULL);
INSERT INTO "owners" ("id", "name", "skeleton", "created_at", "retired_at") VALUES (2, 'alice', 'allce', '2026-11-28 18:56:45.284427', NULL);
INSERT INTO "owners" ("id", "name", "skeleton", "created_at", "retired_at") VALUES (3, 'bob', 'bob', '2026-11-28 18:56:45.891389', NULL);
INSERT INTO "owners" ("id", "name", "skeleton", "created_at", "retired_at") VALUES (4, 'carol', 'carol', '2026-11-28 18:56:46.654048', NULL);
INSERT INTO "owners" ("id", "name", "skeleton", "created_at", "retired_at") VALUES (5, 'guild', 'gulld', '2026-11-28 18:56:48.407022', NULL);
INSERT INTO "owners" ("id", "name", "skeleton", "created_at", "retired_at") VALUES (6, 'dora', 'dora', '2026-11-28 18:56:48.836851', NULL);
INSERT INTO "owners" ("id", "name", "skeleton", "created_at", "retired_at") VALUES (7, 'ada', 'ada', '2026-11-28 18:57:23.380637', NULL);
INSERT INTO "publisher_keys" ("owner_id", "key", "added_at") VALUES (2, 'ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=', '2026-11-28 18:56:47.944587');
INSERT INTO "publisher_keys" ("owner_id", "key", "added_at") VALUES (2, 'ed25519:e+5W/OiDfkVdpG982ZyNbA2piIzzU6E9UpoiYrjauXg=', '2026-11-28 18:56:48.134462');
INSERT INTO "publisher_keys" ("owner_id", "key", "added_at") VALUES (1, 'ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=', '2026-11-28 18:57:02.437812');
INSERT INTO "publisher_keys" ("owner_id", "key", "added_at") VALUES (7, 'ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=', '2026-11-28 18:57:23.380637');
INSERT INTO "packages" ("id", "owner_id", "owner", "name", "skeleton", "distribution", "latest", "summary", "created_at", "updated_at", "private") VALUES (1, 2, 'alice', 'coin', 'coln', 'alice-coin', '1.0.0', '{"id":"alice/coin","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["toss"],"tools":[],"tasks":null,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:56:47.944587Z"}', '2026-11-28 18:56:47.944587', '2026-11-28 18:56:48.014394', 0);
INSERT INTO "packages" ("id", "owner_id", "owner", "name", "skeleton", "distribution", "latest", "summary", "created_at", "updated_at", "private") VALUES (2, 2, 'alice', 'secret', 'secret', 'alice-secret', '1.0.0', '{"id":"alice/secret","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["toss"],"tools":[],"tasks":null,"signed":true,"yanked":false,"passed":null,"private":true,"updatedAt":"2026-11-28T18:56:48.224537Z"}', '2026-11-28 18:56:48.224537', '2026-11-28 18:56:48.224537', 1);
INSERT INTO "packages" ("id", "owner_id", "owner", "name", "skeleton", "distribution", "latest", "summary", "created_at", "updated_at", "private") VALUES (3, 1, 'root', 'locks', 'locks', 'root-locks', '1.0.0', '{"id":"root/locks","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["locks"],"tools":[],"tasks":40,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:57:02.437812Z"}', '2026-11-28 18:57:02.437812', '2026-11-28 18:57:02.437812', 0);
INSERT INTO "packages" ("id", "owner_id", "owner", "name", "skeleton", "distribution", "latest", "summary", "created_at", "updated_at", "private") VALUES (4, 1, 'root', 'others', 'others', 'root-others', '1.0.0', '{"id":"root/others","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["locks"],"tools":[],"tasks":40,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:57:11.948473Z"}', '2026-11-28 18:57:11.948473', '2026-11-28 18:57:11.948473', 0);
INSERT INTO "packages" ("id", "owner_id", "owner", "name", "skeleton", "distribution", "latest", "summary", "created_at", "updated_at", "private") VALUES (5, 7, 'ada', 'locks', 'locks', 'ada-locks', '1.0.0', '{"id":"ada/locks","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["locks","debts"],"tools":[],"tasks":88,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:57:23.380637Z"}', '2026-11-28 18:57:23.380637', '2026-11-28 18:57:23.380637', 0);
INSERT INTO "packages" ("id", "owner_id", "owner", "name", "skeleton", "distribution", "latest", "summary", "created_at", "updated_at", "private") VALUES (6, 7, 'ada', 'games', 'games', 'ada-games', '1.0.0', '{"id":"ada/games","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["auction","duel","locks","melee"],"tools":[],"tasks":143,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:57:25.064433Z"}', '2026-11-28 18:57:25.064433', '2026-11-28 18:57:25.064433', 0);
INSERT INTO "maintainers" ("package_id", "principal") VALUES (1, 'bob');
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('coin', 1);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('owner:alice', 1);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('coin', 2);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('owner:alice', 2);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('coin', 3);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('owner:root', 3);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('coin', 4);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('owner:root', 4);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('coin', 5);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('owner:ada', 5);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('coin', 6);
INSERT INTO "package_tags" ("tag", "package_id") VALUES ('owner:ada', 6);
INSERT INTO "versions" ("id", "package_id", "version", "filename", "sha256", "size", "metadata_sha256", "requires_python", "manifest", "card", "signed", "validation", "uploaded_by", "uploaded_at", "yanked", "changed_at") VALUES (1, 1, '1.0.0', 'alice_coin-1.0.0-py3-none-any.whl', 'c656e332b55fbe4fe299c6ad2a7ff2324b0d05796b8800008182a2787c3ccf25', 1494, '852c2b5684cf5388bb8b97f93860ea4ebd2fb774d12b86c66e50ca9b95af13f2', '>=3.11', '{"id":"alice/coin","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"toss","source":"alice_coin:Toss","version":"","description":"","splits":[],"tools":[],"rewardRange":null,"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin

Ünïcode   &amp; ''quotes'', "more"; and a line that begins like a statement:
SET x = 1;
', '{"statement":{"kind":"ludus-package-1","id":"alice/coin","version":"1.0.0","filename":"alice_coin-1.0.0-py3-none-any.whl","sha256":"c656e332b55fbe4fe299c6ad2a7ff2324b0d05796b8800008182a2787c3ccf25","size":1494,"manifestSha256":"e92ab03baaf7e60e26d6cb94707140ce2a1ebe4c9770da0d7836d4ea743af486","cardSha256":"7bbda076afbe628d3aed6fe387bb004aed4da206a28b870fbd85876e01c67985"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"wOUWytmzjJ4sX74uEhdPAZ50wcZKFavYlVzBwwrUSxEnDGpDyXnLPRt1uR/3RPZazesPvjkrHtMPjRLiMuCtCA=="}', NULL, 'alice', '2026-11-28 18:56:47.944587', NULL, '2026-11-28 18:56:48.042124');
INSERT INTO "versions" ("id", "package_id", "version", "filename", "sha256", "size", "metadata_sha256", "requires_python", "manifest", "card", "signed", "validation", "uploaded_by", "uploaded_at", "yanked", "changed_at") VALUES (2, 1, '1.1.0', 'alice_coin-1.1.0-py3-none-any.whl', 'f65b956a5d57782d50a8f1a5b9e649c8a93be7f705fe28512815e641fc5401aa', 1493, 'eae9abd1e36cfecc2f6c7d8ee47e52cc53767e17dc470a8eda57151644c18960', '>=3.11', '{"id":"alice/coin","version":"1.1.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"toss","source":"alice_coin:Toss","version":"","description":"","splits":[],"tools":[],"rewardRange":null,"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin

Ünïcode   &amp; ''quotes'', "more"; and a line that begins like a statement:
SET x = 1;
', '{"statement":{"kind":"ludus-package-1","id":"alice/coin","version":"1.1.0","filename":"alice_coin-1.1.0-py3-none-any.whl","sha256":"f65b956a5d57782d50a8f1a5b9e649c8a93be7f705fe28512815e641fc5401aa","size":1493,"manifestSha256":"0a9014c7b6851f800425e593268ee927f34c89f744ab96ae466bdcba43d072b9","cardSha256":"7bbda076afbe628d3aed6fe387bb004aed4da206a28b870fbd85876e01c67985"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"Wx8Yes1uErk80jC1MjsYrkup2oxFRkXUlc9u7VF9mJbZB0EiO59v1KbHLJrk56vNWog4sjZ8miEHjJZPy64xBw=="}', NULL, 'alice', '2026-11-28 18:56:48.014394', 'a wrong coin; it''s false', '2026-11-28 18:56:48.042124');
INSERT INTO "versions" ("id", "package_id", "version", "filename", "sha256", "size", "metadata_sha256", "requires_python", "manifest", "card", "signed", "validation", "uploaded_by", "uploaded_at", "yanked", "changed_at") VALUES (3, 2, '1.0.0', 'alice_secret-1.0.0-py3-none-any.whl', '2236a129b684a24024431ff3cc309247346ecfdb356254a6bcd9726a02689e0b', 1519, '7f3c6cc7d0e456168bd931e9f8d79eb023fd51beea5b6c18ac4032e875d15ee7', '>=3.11', '{"id":"alice/secret","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"toss","source":"alice_secret:Toss","version":"","description":"","splits":[],"tools":[],"rewardRange":null,"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"alice/secret","version":"1.0.0","filename":"alice_secret-1.0.0-py3-none-any.whl","sha256":"2236a129b684a24024431ff3cc309247346ecfdb356254a6bcd9726a02689e0b","size":1519,"manifestSha256":"740ab53c3e1d04fa46badd6514a1679caef9a136d9fbb3a202d7a7646de052f6","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"V7fIlS7p8lNXj1dhmRq8kZN3bcexeSSiJmRjaWmJsKczJ0rb2OUYOXoaR21+Ds0BrPHT5wgEJc9v3i/L4UIRDQ=="}', NULL, 'alice', '2026-11-28 18:56:48.224537', NULL, '2026-11-28 18:56:48.224537');
INSERT INTO "versions" ("id", "package_id", "version", "filename", "sha256", "size", "metadata_sha256", "requires_python", "manifest", "card", "signed", "validation", "uploaded_by", "uploaded_at", "yanked", "changed_at") VALUES (4, 3, '1.0.0', 'root_locks-1.0.0-py3-none-any.whl', '91390c924a85fbd4ab9e3db5a749335aacb264195b915bac4105569233e1a63d', 1601, '48935d96b5d398c203392af82ad87feb0561ffa65d3b400a82add2bf1c96a0d1', '>=3.11', '{"id":"root/locks","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"locks","source":"root_locks:Locks","version":"1.0","description":"","splits":[{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[0.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"root/locks","version":"1.0.0","filename":"root_locks-1.0.0-py3-none-any.whl","sha256":"91390c924a85fbd4ab9e3db5a749335aacb264195b915bac4105569233e1a63d","size":1601,"manifestSha256":"bc44ae808bba1bdf0ab220f3188416c398563c3a877aa7a23d28898b000d2687","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"KOxYUmAl792sbdKOiLHnlL6gUoulE31z5Y7ZEu9ETHa1isj3wqVrX/Mt96Ajs+qY5Eph9DnikYzqxuqqP1KFCg=="}', NULL, 'root', '2026-11-28 18:57:02.437812', NULL, '2026-11-28 18:57:02.437812');
INSERT INTO "versions" ("id", "package_id", "version", "filename", "sha256", "size", "metadata_sha256", "requires_python", "manifest", "card", "signed", "validation", "uploaded_by", "uploaded_at", "yanked", "changed_at") VALUES (5, 4, '1.0.0', 'root_others-1.0.0-py3-none-any.whl', 'c15ef2f76d8d0c61800e83cf42e270bd62e778bca5b8f654d4e0e6be71f6dbbb', 1618, '068e2669b583b1e245be07bdf59137dfbfd030d160a38d125aacb71f33704e62', '>=3.11', '{"id":"root/others","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"locks","source":"root_others:Locks","version":"1.0","description":"","splits":[{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[0.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"root/others","version":"1.0.0","filename":"root_others-1.0.0-py3-none-any.whl","sha256":"c15ef2f76d8d0c61800e83cf42e270bd62e778bca5b8f654d4e0e6be71f6dbbb","size":1618,"manifestSha256":"6582507cd47d8b490952ad5b3a2aca8f8cb6b362047382d153df7a336e3e351d","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"rzI8LXIxmPVYAxXHw6/UwU4sB7fTkolJj0BvO27KzoCfHoR4EAVGY+RUx1v/N3oZTkjYQFqrSqXfyp/VHnQgAg=="}', NULL, 'root', '2026-11-28 18:57:11.948473', NULL, '2026-11-28 18:57:11.948473');
INSERT INTO "versions" ("id", "package_id", "version", "filename", "sha256", "size", "metadata_sha256", "requires_python", "manifest", "card", "signed", "validation", "uploaded_by", "uploaded_at", "yanked", "changed_at") VALUES (6, 5, '1.0.0', 'ada_locks-1.0.0-py3-none-any.whl', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 1484, '5be1b975ea036c41df7e98a39302186d3b1964ce0dcebcef776a5dac95921c35', '>=3.11', '{"id":"ada/locks","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"locks","source":"ada_locks:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":4},{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[0.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null},{"name":"debts","source":"ada_locks:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":4},{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[-1.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"ada/locks","version":"1.0.0","filename":"ada_locks-1.0.0-py3-none-any.whl","sha256":"a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205","size":1484,"manifestSha256":"e0c8e72a30f049719d60de77c44985666982313d0adaf09d605b47e2a1864fd8","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"WPQuPfXHRGYO3UwA6WVk2cijUblDW4AHXj8oSjmsU9peEK+E1pg52GNtIpGwGB8CG7gQx9Loafe46upVk5v3Dw=="}', NULL, 'ada', '2026-11-28 18:57:23.380637', NULL, '2026-11-28 18:57:23.380637');
INSERT INTO "versions" ("id", "package_id", "version", "filename", "sha256", "size", "metadata_sha256", "requires_python", "manifest", "card", "signed", "validation", "uploaded_by", "uploaded_at", "yanked", "changed_at") VALUES (7, 6, '1.0.0', 'ada_games-1.0.0-py3-none-any.whl', '8aff45dcd4d7ad330e762abc443296c057fcca004efeb9020e3431c8194ea288', 1505, 'e14a574aac8e2a67a56bbbb9e265224c68dc5c6d97224e1d1d71090d2382bc1e', '>=3.11', '{"id":"ada/games","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"auction","source":"ada_games:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":3},{"name":"test","type":"test","count":30}],"tools":[],"rewardRange":[-1.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null},{"name":"duel","source":"ada_games:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":3},{"name":"test","type":"test","count":30}],"tools":[],"rewardRange":[-1.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null},{"name":"locks","source":"ada_games:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":4},{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[0.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null},{"name":"melee","source":"ada_games:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":3},{"name":"test","type":"test","count":30}],"tools":[],"rewardRange":[-1.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"ada/games","version":"1.0.0","filename":"ada_games-1.0.0-py3-none-any.whl","sha256":"8aff45dcd4d7ad330e762abc443296c057fcca004efeb9020e3431c8194ea288","size":1505,"manifestSha256":"e6ea38084e3ea19baa56347603c109976fa9455abba4731d89e8952ab07b62b1","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"g82Sr6X6Q5aGH3pTbMo1p/yt/V7b2dV61cUhEbRI1KijRx2i9T/HQaNJvjU5YkLzD2YPBJ9ydeOzXfeOVCsfBw=="}', NULL, 'ada', '2026-11-28 18:57:25.064433', NULL, '2026-11-28 18:57:25.064433');
INSERT INTO "package_search" (rowid, "name", "tags", "description", "body") VALUES (1, 'alice coin', 'coin', 'a coin', 'toss coin ünïcode amp quotes more and a line that begins like a statement set x 1');
INSERT INTO "package_search" (rowid, "name", "tags", "description", "body") VALUES (2, 'alice secret', 'coin', 'a coin', 'toss coin');
INSERT INTO "package_search" (rowid, "name", "tags", "description", "body") VALUES (3, 'root locks', 'coin', 'a coin', 'locks coin');
INSERT INTO "package_search" (rowid, "name", "tags", "description", "body") VALUES (4, 'root others', 'coin', 'a coin', 'locks coin');
INSERT INTO "package_search" (rowid, "name", "tags", "description", "body") VALUES (5, 'ada locks', 'coin', 'a coin', 'locks debts coin');
INSERT INTO "package_search" (rowid, "name", "tags", "description", "body") VALUES (6, 'ada games', 'coin', 'a coin', 'auction duel locks melee coin');
INSERT INTO "readers" ("package_id", "principal") VALUES (2, 'bob');
INSERT INTO "accounts" ("id", "owner_id", "name", "password", "is_admin", "created_at", "disabled_at") VALUES (1, 1, 'root', '$argon2id$v=19$m=65536,t=3,p=4$JzvVoeuO7F1TqqZ9lVQRvg$v3t4HUr6XSan5l2wZqOeNkyoWACPWFH64PuWg6kL7K0', 1, '2026-11-28 18:56:44.835409', NULL);
INSERT INTO "accounts" ("id", "owner_id", "name", "password", "is_admin", "created_at", "disabled_at") VALUES (2, 2, 'alice', '$argon2id$v=19$m=65536,t=3,p=4$m5tku79sqPJuYb+rxk2aZQ$MyD/PGK69AwoazYaiEcnfyz21dPOBdTTTO1+GsOykkw', 0, '2026-11-28 18:56:45.284427', NULL);
INSERT INTO "accounts" ("id", "owner_id", "name", "password", "is_admin", "created_at", "disabled_at") VALUES (3, 3, 'bob', '$argon2id$v=19$m=65536,t=3,p=4$FlkiGVvjQ+4qD0RuI2mFPw$ACpTu3EEEXavh4eCI0mZuv3mxPQcRpKcQeJV/xb2bUs', 0, '2026-11-28 18:56:45.891389', NULL);
INSERT INTO "accounts" ("id", "owner_id", "name", "password", "is_admin", "created_at", "disabled_at") VALUES (4, 4, 'carol', '$argon2id$v=19$m=65536,t=3,p=4$9OPWgpwHm0zpotiV/LLA0g$3A920NpqcEYIPGUmr3+MyuA43FXUb8WB+sOVewFxgwA', 0, '2026-11-28 18:56:46.654048', NULL);
INSERT INTO "accounts" ("id", "owner_id", "name", "password", "is_admin", "created_at", "disabled_at") VALUES (5, 6, 'dora', '', 0, '2026-11-28 18:56:48.836851', NULL);
INSERT INTO "account_sessions" ("digest", "account_id", "browser", "created_at", "used_at", "confirmed_at") VALUES ('d9c364ec5c70e82c9d739e307039e6e244c1e8b0aa4b5d41e1e8ff68f5d9e95d', 5, 'testclient', '2026-11-28 18:56:48.865589', '2026-11-28 18:56:48.865589', NULL);
INSERT INTO "account_sessions" ("digest", "account_id", "browser", "created_at", "used_at", "confirmed_at") VALUES ('d53e9fe92acbe5458081e437f334d8c6dc2395616bce214a6eb7abaf82677916', 2, 'testclient', '2026-11-28 18:56:49.647948', '2026-11-28 18:56:49.647948', NULL);
INSERT INTO "account_sessions" ("digest", "account_id", "browser", "created_at", "used_at", "confirmed_at") VALUES ('b918b22a1581fedd39058065f00e6aad35bd561f20257151131a1ddcd21803de', 2, 'a browser', '2026-11-28 18:56:49.815610', '2026-11-28 18:56:49.815610', NULL);
INSERT INTO "access_tokens" ("id", "account_id", "name", "digest", "scopes", "packages", "created_at", "expires_at", "used_at") VALUES (1, 2, 'a program', '1a0d0a7940905235702a8c6e48be9f9d6e16071afa22e0c19fb88f39b1572665', 'account publish read results run training', '', '2026-11-28 18:56:47.103192', NULL, '2026-11-28 18:56:47.863234');
INSERT INTO "access_tokens" ("id", "account_id", "name", "digest", "scopes", "packages", "created_at", "expires_at", "used_at") VALUES (2, 3, 'test', 'ec28b47ba31397dd3436ebf6995e35928bf5981c96e35400a6fa75fcaeea713e', 'account publish read results run training', '', '2026-11-28 18:56:47.546199', '2026-11-29 18:56:47.546199', '2026-11-28 18:56:48.461240');
INSERT INTO "access_tokens" ("id", "account_id", "name", "digest", "scopes", "packages", "created_at", "expires_at", "used_at") VALUES (3, 1, 'test', '76f411932d378d045bb11923dd2ad4169e2bbec099e12503ac0e6ca7c5750eb0', 'admin', '', '2026-11-28 18:56:47.818444', '2026-11-29 18:56:47.818444', '2026-11-28 18:56:48.388674');
INSERT INTO "invitations" ("digest", "created_by", "expires_at") VALUES ('a738e58fd2cf30facbffed4b05718f25cf6c12a8f6657bedeb52e6976b40694e', 'root', '2026-12-12 18:56:48.390361');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (1, '2026-11-28 18:56:44.850694', '', 'account created', 'root', 'root', '');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (2, '2026-11-28 18:56:45.286694', '', 'account created', 'alice', 'alice', '');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (3, '2026-11-28 18:56:45.912422', '', 'account created', 'bob', 'bob', '');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (4, '2026-11-28 18:56:46.663604', '', 'account created', 'carol', 'carol', '');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (5, '2026-11-28 18:56:47.117997', 'alice', 'token created', 'a program (account publish read results run training)', 'alice', '');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (6, '2026-11-28 18:56:47.547913', 'bob', 'token created', 'test (account publish read results run training)', 'bob', '');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (7, '2026-11-28 18:56:47.820227', 'root', 'token created', 'test (admin)', 'root', '');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (8, '2026-11-28 18:56:47.972112', 'alice', 'published', 'alice/coin 1.0.0', 'alice', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (9, '2026-11-28 18:56:48.028884', 'alice', 'published', 'alice/coin 1.1.0', 'alice', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (10, '2026-11-28 18:56:48.088014', 'alice', 'yanked', 'alice/coin 1.1.0', 'alice', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (11, '2026-11-28 18:56:48.108823', 'alice', 'owner added', 'alice/coin: bob', 'alice', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (12, '2026-11-28 18:56:48.148965', 'alice', 'key added', 'ed25519:e+5W/OiDfkVdpG982ZyNbA2piIzzU6E9UpoiYrjauXg=', 'alice', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (13, '2026-11-28 18:56:48.260950', 'alice', 'published', 'alice/secret 1.0.0', 'alice', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (14, '2026-11-28 18:56:48.366890', 'alice', 'reader added', 'alice/secret: bob', 'alice', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (15, '2026-11-28 18:56:48.391257', 'root', 'invitation created', 'valid until 2026-12-12', 'root', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (16, '2026-11-28 18:56:48.411648', 'alice', 'organization created', 'guild', 'guild', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (17, '2026-11-28 18:56:48.444157', 'alice', 'invited', 'bob: reader', 'guild', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (18, '2026-11-28 18:56:48.456221', 'alice', 'invited', 'carol: reader', 'guild', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (19, '2026-11-28 18:56:48.470447', 'bob', 'joined', 'bob: reader', 'guild', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (20, '2026-11-28 18:56:48.838071', 'dora', 'account created', 'dora', 'dora', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (21, '2026-11-28 18:56:48.839118', 'dora', 'identity linked', 'dora-at-provider at http://127.0.0.1:46027', 'dora', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (22, '2026-11-28 18:56:49.623552', 'alice', 'signed in', '', 'alice', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (23, '2026-11-28 18:56:49.764945', 'alice', 'training run created', '9cLARc3Xk_I2jZyH78fnUg a run', 'alice', 'testclient');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (24, '2026-11-28 18:57:02.578227', 'root', 'published', 'root/locks 1.0.0', 'root', '127.0.0.1');
INSERT INTO "audit_events" ("id", "at", "actor", "action", "subject", "account", "address") VALUES (25, '2026-11-28 18:57:11.977020', 'root', 'published', 'root/others 1.0.0', 'root', '127.0.0.1');
INSERT INTO "result_boards" ("id", "package", "version", "sha256", "environment", "split", "level", "lowest", "highest", "tasks", "difficulty") VALUES (1, 'root/locks', '1.0.0', '91390c924a85fbd4ab9e3db5a749335aacb264195b915bac4105569233e1a63d', 'locks', 'test', 'verified', 0.0, 1.0, '[["lock-36", 1, 1.0, 1]]', '[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]');
INSERT INTO "result_boards" ("id", "package", "version", "sha256", "environment", "split", "level", "lowest", "highest", "tasks", "difficulty") VALUES (2, 'root/others', '1.0.0', 'c15ef2f76d8d0c61800e83cf42e270bd62e778bca5b8f654d4e0e6be71f6dbbb', 'locks', 'test', 'verified', 0.0, 1.0, '[["lock-14", 1, 0.0, 0]]', '[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]');
INSERT INTO "result_boards" ("id", "package", "version", "sha256", "environment", "split", "level", "lowest", "highest", "tasks", "difficulty") VALUES (3, 'ada/locks', '1.0.0', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 'locks', 'test', 'played', 0.0, 1.0, '[["lock-3", 1, 1.0, 1], ["lock-39", 1, 1.0, 1], ["lock-30", 1, 1.0, 1], ["lock-24", 1, 0.0, 0]]', '[1, 0, 0, 0, 0, 0, 0, 0, 0, 3]');
INSERT INTO "result_boards" ("id", "package", "version", "sha256", "environment", "split", "level", "lowest", "highest", "tasks", "difficulty") VALUES (4, 'ada/locks', '1.0.0', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 'debts', 'test', 'played', -1.0, 1.0, '[]', '[]');
INSERT INTO "result_boards" ("id", "package", "version", "sha256", "environment", "split", "level", "lowest", "highest", "tasks", "difficulty") VALUES (5, 'ada/locks', '1.0.0', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 'locks', 'test', 'reported', 0.0, 1.0, '[["lock-0", 1, 1.0, 1], ["lock-1", 1, 0.0, 0], ["lock-2", 1, 0.0, 0], ["lock-3", 1, 1.0, 1]]', '[2, 0, 0, 0, 0, 0, 0, 0, 0, 2]');
INSERT INTO "result_boards" ("id", "package", "version", "sha256", "environment", "split", "level", "lowest", "highest", "tasks", "difficulty") VALUES (6, 'ada/locks', '1.0.0', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 'locks', 'train', 'reported', 0.0, 1.0, '[["train-0", 1, 1.0, 1]]', '[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]');
INSERT INTO "result_lines" ("id", "board_id", "principal", "model", "harness", "mean", "document") VALUES (1, 1, 'alice', 'm-1 at 127.0.0.1:41221', 'ludus 0.1.0 sha256:13281a818640', 1.0, '{"by":"alice","byPublisher":false,"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","runs":["2s5qqBl6WuwXs4wO_N_wTw"],"accountRuns":1,"tasks":1,"episodes":1,"unscored":0,"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"inputTokens":11,"outputTokens":3,"cost":null,"at":"2026-11-28T18:57:11.661657Z"}');
INSERT INTO "result_lines" ("id", "board_id", "principal", "model", "harness", "mean", "document") VALUES (2, 2, 'alice', 'm-1 at 127.0.0.1:41221', 'ludus 0.1.0 sha256:13281a818640', 0.0, '{"by":"alice","byPublisher":false,"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","runs":["s_kx5TH5r-tGXL4C16d_AA"],"accountRuns":1,"tasks":1,"episodes":1,"unscored":1,"mean":{"value":0.0,"error":null,"interval":null,"tasks":1},"success":{"value":0.0,"error":null,"interval":[0.0,0.7934506856996815],"tasks":1},"passAt":{"1":{"value":0.0,"error":null,"interval":[0.0,0.7934506856996815],"tasks":1}},"inputTokens":null,"outputTokens":null,"cost":null,"at":"2026-11-28T18:57:17.957078Z"}');
INSERT INTO "result_lines" ("id", "board_id", "principal", "model", "harness", "mean", "document") VALUES (3, 3, 'alice', 'm', 'h 1', 0.75, '{"by":"alice","byPublisher":false,"model":"m","harness":"h 1","runs":["hkpynqGWqGaT5K56aPfgWA"],"accountRuns":1,"tasks":4,"episodes":4,"unscored":0,"mean":{"value":0.75,"error":0.25,"interval":[0.0,1.0],"tasks":4},"success":{"value":0.75,"error":0.25,"interval":[0.13071841103628323,0.9835662235317406],"tasks":4},"passAt":{"1":{"value":0.75,"error":0.25,"interval":[0.13071841103628323,0.9835662235317406],"tasks":4}},"inputTokens":4000,"outputTokens":400,"cost":0.0084,"at":"2026-11-28T18:57:24.637737Z"}');
INSERT INTO "result_lines" ("id", "board_id", "principal", "model", "harness", "mean", "document") VALUES (4, 5, 'bob', 'm', 'h 1', 0.5, '{"by":"bob","byPublisher":false,"model":"m","harness":"h 1","runs":["xpvU2j-sLTz-ruMqAX5syQ"],"accountRuns":1,"tasks":4,"episodes":4,"unscored":1,"mean":{"value":0.5,"error":0.28867513459481287,"interval":[0.0,1.0],"tasks":4},"success":{"value":0.5,"error":0.28867513459481287,"interval":[0.06084435251725609,0.9391556474827438],"tasks":4},"passAt":{"1":{"value":0.5,"error":0.28867513459481287,"interval":[0.06084435251725609,0.9391556474827438],"tasks":4}},"inputTokens":40,"outputTokens":8,"cost":null,"at":"2026-11-28T18:57:24.743363Z"}');
INSERT INTO "result_lines" ("id", "board_id", "principal", "model", "harness", "mean", "document") VALUES (5, 6, 'alice', 'm', 'h 1', 1.0, '{"by":"alice","byPublisher":false,"model":"m","harness":"h 1","runs":["ihIils9UUmrC3MfrVaHKsg"],"accountRuns":1,"tasks":1,"episodes":1,"unscored":0,"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"inputTokens":10,"outputTokens":2,"cost":null,"at":"2026-11-28T18:57:24.968996Z"}');
INSERT INTO "result_runs" ("id", "key", "board_id", "principal", "by_publisher", "number", "model", "harness", "declared", "tasks", "samples", "success_at", "lowest", "highest", "state", "created_at", "deadline", "ended_at", "commitment", "opening", "digest", "reruns", "figures", "per_task", "receipt", "removed_at", "removed_by", "removed_reason", "rollouts") VALUES (1, '2s5qqBl6WuwXs4wO_N_wTw', 1, 'alice', 0, 1, 'm-1 at 127.0.0.1:41221', 'ludus 0.1.0 sha256:13281a818640', '{"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","options":{},"priceIn":null,"priceOut":null}', 1, 1, 1.0, 0.0, 1.0, 'ended', '2026-11-28 18:57:09.520489', '2026-12-01 18:57:09.520489', '2026-11-28 18:57:11.661657', '832085d903453174692ffa1522996d6bafa1c6888fed1deed83c3feea6683917', '{"secret":"16386ebb5836e8435d6e04702d1ab7f8297e0c087cc86d7a91a67e43bc8e777d","environment":"locks","split":"test","count":40,"tasks":[{"index":36,"task":"lock-36","seeds":[249797589595598]}]}', NULL, 0, '{"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"ends":{"completed":1},"episodes":1,"unscored":0,"inputTokens":11,"outputTokens":3,"cost":null}', '[["lock-36", 1, 1.0, 1]]', '{"statement":{"run":"2s5qqBl6WuwXs4wO_N_wTw","package":"root/locks","version":"1.0.0","sha256":"91390c924a85fbd4ab9e3db5a749335aacb264195b915bac4105569233e1a63d","environment":"locks","split":"test","tasks":1,"samples":1,"by":"alice","declared":{"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","options":{},"priceIn":null,"priceOut":null},"registeredAt":"2026-11-28T18:57:09.520489Z","endedAt":"2026-11-28T18:57:11.661657Z","rewardRange":[0.0,1.0],"commitment":"832085d903453174692ffa1522996d6bafa1c6888fed1deed83c3feea6683917","opening":{"secret":"16386ebb5836e8435d6e04702d1ab7f8297e0c087cc86d7a91a67e43bc8e777d","environment":"locks","split":"test","count":40,"tasks":[{"index":36,"task":"lock-36","seeds":[249797589595598]}]},"rows":1,"root":"270d15581103cc017c9913cc8d9af8737466ebf373b13571c5f763aef7f7db28","ends":{"completed":1},"mean":1.0,"kind":"ludus-receipt-verified-1","verified":{"harness":"ludus 0.1.0","harnessSha256":"13281a81864085cf8d230d5ae48cb45d0afe8ae84f43f56001addc700b08ac69","host":"127.0.0.1:41221","model":"m-1"},"calls":1,"callsRoot":"e9185eea50f5205e7dfa2dcd1c642043ecf508940d46ba48930e64568b336bae"},"key":"ed25519:jU6ZCaVAAULZO85dyWcVbmcDH4jyujJLS+OATHmtb8M=","signature":"T6IJSCGjwl5Cj4JQ3xOI7VhCJoRLdbkNBr2xXwJrdC3CiVsSWzirLh/49x4wx3iXVvVm1DzEEPDiomNsjt3oBA=="}', NULL, NULL, NULL, NULL);
INSERT INTO "result_runs" ("id", "key", "board_id", "principal", "by_publisher", "number", "model", "harness", "declared", "tasks", "samples", "success_at", "lowest", "highest", "state", "created_at", "deadline", "ended_at", "commitment", "opening", "digest", "reruns", "figures", "per_task", "receipt", "removed_at", "removed_by", "removed_reason", "rollouts") VALUES (2, 's_kx5TH5r-tGXL4C16d_AA', 2, 'alice', 0, 1, 'm-1 at 127.0.0.1:41221', 'ludus 0.1.0 sha256:13281a818640', '{"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","options":{},"priceIn":null,"priceOut":null}', 1, 1, 1.0, 0.0, 1.0, 'ended', '2026-11-28 18:57:17.854751', '2026-12-01 18:57:17.854751', '2026-11-28 18:57:17.957078', '728f936743280b5a975a747a68e6f400cc67c8c6569390a8a85ff9a2983d30ea', '{"secret":"292efac07bff9084b360d1fffd716b37c3ac486c08fcc3c507580aab59df4bda","environment":"locks","split":"test","count":40,"tasks":[{"index":14,"task":"lock-14","seeds":[81202629912704]}]}', NULL, 2, '{"mean":{"value":0.0,"error":null,"interval":null,"tasks":1},"success":{"value":0.0,"error":null,"interval":[0.0,0.7934506856996815],"tasks":1},"passAt":{"1":{"value":0.0,"error":null,"interval":[0.0,0.7934506856996815],"tasks":1}},"ends":{"infrastructure_error":1},"episodes":1,"unscored":1,"inputTokens":null,"outputTokens":null,"cost":null}', '[["lock-14", 1, 0.0, 0]]', '{"statement":{"run":"s_kx5TH5r-tGXL4C16d_AA","package":"root/others","version":"1.0.0","sha256":"c15ef2f76d8d0c61800e83cf42e270bd62e778bca5b8f654d4e0e6be71f6dbbb","environment":"locks","split":"test","tasks":1,"samples":1,"by":"alice","declared":{"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","options":{},"priceIn":null,"priceOut":null},"registeredAt":"2026-11-28T18:57:17.854751Z","endedAt":"2026-11-28T18:57:17.957078Z","rewardRange":[0.0,1.0],"commitment":"728f936743280b5a975a747a68e6f400cc67c8c6569390a8a85ff9a2983d30ea","opening":{"secret":"292efac07bff9084b360d1fffd716b37c3ac486c08fcc3c507580aab59df4bda","environment":"locks","split":"test","count":40,"tasks":[{"index":14,"task":"lock-14","seeds":[81202629912704]}]},"rows":1,"root":"136a404edb89bbe1d36e45257479531dd8079ac351895702747fd0a9e408d49d","ends":{"infrastructure_error":1},"mean":0.0,"kind":"ludus-receipt-verified-1","verified":{"harness":"ludus 0.1.0","harnessSha256":"13281a81864085cf8d230d5ae48cb45d0afe8ae84f43f56001addc700b08ac69","host":"127.0.0.1:41221","model":"m-1"},"calls":0,"callsRoot":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},"key":"ed25519:jU6ZCaVAAULZO85dyWcVbmcDH4jyujJLS+OATHmtb8M=","signature":"sn9tUFqSZ9JLPkTrS+xccUhpdB23nMlSRA6bdz2KND2HiX2EFHIjxorVaUyvTxChQJwoLbRnS7fQdSB92hnMDA=="}', NULL, NULL, NULL, NULL);
INSERT INTO "result_runs" ("id", "key", "board_id", "principal", "by_publisher", "number", "model", "harness", "declared", "tasks", "samples", "success_at", "lowest", "highest", "state", "created_at", "deadline", "ended_at", "commitment", "opening", "digest", "reruns", "figures", "per_task", "receipt", "removed_at", "removed_by", "removed_reason", "rollouts") VALUES (3, 'hkpynqGWqGaT5K56aPfgWA', 3, 'alice', 0, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":2.0,"priceOut":1.0}', 4, 1, 1.0, 0.0, 1.0, 'ended', '2026-11-28 18:57:24.086654', '2026-11-29 18:57:24.086654', '2026-11-28 18:57:24.637737', 'd95a2a74f7f7e09179e5328190406d9beb439efd89874dbb385079d4b6ad5fbe', '{"secret":"fc2d25dc6b2f16a98a54c6899d555025d1945dea3a58cb0ed66fa84e009a54ae","environment":"locks","split":"test","count":40,"tasks":[{"index":3,"task":"lock-3","seeds":[72168179831785]},{"index":39,"task":"lock-39","seeds":[115978604515625]},{"index":30,"task":"lock-30","seeds":[224652280195216]},{"index":24,"task":"lock-24","seeds":[232706224700343]}]}', NULL, 0, '{"mean":{"value":0.75,"error":0.25,"interval":[0.0,1.0],"tasks":4},"success":{"value":0.75,"error":0.25,"interval":[0.13071841103628323,0.9835662235317406],"tasks":4},"passAt":{"1":{"value":0.75,"error":0.25,"interval":[0.13071841103628323,0.9835662235317406],"tasks":4}},"ends":{"completed":4},"episodes":4,"unscored":0,"inputTokens":4000,"outputTokens":400,"cost":0.0084}', '[["lock-3", 1, 1.0, 1], ["lock-39", 1, 1.0, 1], ["lock-30", 1, 1.0, 1], ["lock-24", 1, 0.0, 0]]', '{"statement":{"run":"hkpynqGWqGaT5K56aPfgWA","package":"ada/locks","version":"1.0.0","sha256":"a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205","environment":"locks","split":"test","tasks":4,"samples":1,"by":"alice","declared":{"model":"m","harness":"h 1","options":{},"priceIn":2.0,"priceOut":1.0},"registeredAt":"2026-11-28T18:57:24.086654Z","endedAt":"2026-11-28T18:57:24.637737Z","rewardRange":[0.0,1.0],"commitment":"d95a2a74f7f7e09179e5328190406d9beb439efd89874dbb385079d4b6ad5fbe","opening":{"secret":"fc2d25dc6b2f16a98a54c6899d555025d1945dea3a58cb0ed66fa84e009a54ae","environment":"locks","split":"test","count":40,"tasks":[{"index":3,"task":"lock-3","seeds":[72168179831785]},{"index":39,"task":"lock-39","seeds":[115978604515625]},{"index":30,"task":"lock-30","seeds":[224652280195216]},{"index":24,"task":"lock-24","seeds":[232706224700343]}]},"rows":4,"root":"77bfe0e7d4692040c9c12f834f58bdd14670be88d4998f77545d5f5f5d9eee42","ends":{"completed":4},"mean":0.75,"kind":"ludus-receipt-1"},"key":"ed25519:jU6ZCaVAAULZO85dyWcVbmcDH4jyujJLS+OATHmtb8M=","signature":"5v9xATlfmgOrYzmsRJhdlr1uPcsyU8pubbAnZu6RobCmx1BwKrhMandpMCF7gjSajZxFXNKaLXX8u1XU+bCFDw=="}', NULL, NULL, NULL, NULL);
INSERT INTO "result_runs" ("id", "key", "board_id", "principal", "by_publisher", "number", "model", "harness", "declared", "tasks", "samples", "success_at", "lowest", "highest", "state", "created_at", "deadline", "ended_at", "commitment", "opening", "digest", "reruns", "figures", "per_task", "receipt", "removed_at", "removed_by", "removed_reason", "rollouts") VALUES (4, 'jOrpvd5SMsywZCIPZugyGA', 4, 'bob', 0, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 2, 1, 1.0, -1.0, 1.0, 'open', '2026-11-28 18:57:24.699804', '2026-11-29 18:57:24.699804', NULL, '2aa26806eea96e00da7332eba7821dbe2dca952e4e4792b1a8841bc601d12b26', '{"secret":"ef302c5897b27befe9ad87f6ef81364e2e90c9cfecbc21b18fea0ef6a05dbdcb","environment":"debts","split":"test","count":40,"tasks":[{"index":10,"task":"lock-10","seeds":[91220759579519]},{"index":31,"task":"lock-31","seeds":[39378625376240]}]}', NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO "result_runs" ("id", "key", "board_id", "principal", "by_publisher", "number", "model", "harness", "declared", "tasks", "samples", "success_at", "lowest", "highest", "state", "created_at", "deadline", "ended_at", "commitment", "opening", "digest", "reruns", "figures", "per_task", "receipt", "removed_at", "removed_by", "removed_reason", "rollouts") VALUES (5, 'xpvU2j-sLTz-ruMqAX5syQ', 5, 'bob', 0, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 4, 1, 1.0, 0.0, 1.0, 'ended', '2026-11-28 18:57:24.743363', NULL, '2026-11-28 18:57:24.743363', NULL, NULL, '1f6d7bcbe3b6ef2c29f9f853f0302d39dac14482c172b662abc3cd138ce0b16e', 0, '{"mean":{"value":0.5,"error":0.28867513459481287,"interval":[0.0,1.0],"tasks":4},"success":{"value":0.5,"error":0.28867513459481287,"interval":[0.06084435251725609,0.9391556474827438],"tasks":4},"passAt":{"1":{"value":0.5,"error":0.28867513459481287,"interval":[0.06084435251725609,0.9391556474827438],"tasks":4}},"ends":{"completed":3,"failed":1},"episodes":4,"unscored":1,"inputTokens":40,"outputTokens":8,"cost":null}', '[["lock-0", 1, 1.0, 1], ["lock-1", 1, 0.0, 0], ["lock-2", 1, 0.0, 0], ["lock-3", 1, 1.0, 1]]', NULL, NULL, NULL, NULL, NULL);
INSERT INTO "result_runs" ("id", "key", "board_id", "principal", "by_publisher", "number", "model", "harness", "declared", "tasks", "samples", "success_at", "lowest", "highest", "state", "created_at", "deadline", "ended_at", "commitment", "opening", "digest", "reruns", "figures", "per_task", "receipt", "removed_at", "removed_by", "removed_reason", "rollouts") VALUES (6, '91nnppSgnGWUb9cpnMTlyA', 5, 'alice', 0, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 1, 1, 1.0, 0.0, 1.0, 'ended', '2026-11-28 18:57:24.874444', NULL, '2026-11-28 18:57:24.874444', NULL, NULL, '30e8309c1d7b94f0ba7b83835975e4b1c9e66cc7fae80e658bf27b4a911e887e', 0, '{"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"ends":{"completed":1},"episodes":1,"unscored":0,"inputTokens":10,"outputTokens":2,"cost":null}', '[["lock-0", 1, 1.0, 1]]', NULL, '2026-11-28 18:57:24.942423', 'alice', 'a mistake', NULL);
INSERT INTO "result_runs" ("id", "key", "board_id", "principal", "by_publisher", "number", "model", "harness", "declared", "tasks", "samples", "success_at", "lowest", "highest", "state", "created_at", "deadline", "ended_at", "commitment", "opening", "digest", "reruns", "figures", "per_task", "receipt", "removed_at", "removed_by", "removed_reason", "rollouts") VALUES (7, 'ihIils9UUmrC3MfrVaHKsg', 6, 'alice', 0, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 1, 1, 1.0, 0.0, 1.0, 'ended', '2026-11-28 18:57:24.968996', NULL, '2026-11-28 18:57:24.968996', NULL, NULL, '252a97f8a07c4cdf1db268d2fb4830a3c93d9ad69f2a2d42b323006728008deb', 0, '{"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"ends":{"completed":1},"episodes":1,"unscored":0,"inputTokens":10,"outputTokens":2,"cost":null}', '[["train-0", 1, 1.0, 1]]', NULL, NULL, NULL, NULL, '513666e0870422e274245c477cf1561803d2183ddfdc1912ae7ce30abfb3c37b');
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (1, 0, 'lock-36', 36, 0, 249797589595598, 'ended', 1, 1.0, 1.0, 'completed', 1, '2026-11-28 18:57:09.651865', '2026-11-28 18:57:11.651027', 11, 3, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (2, 0, 'lock-14', 14, 0, 81202629912704, 'ended', 3, NULL, 0.0, 'infrastructure_error', NULL, '2026-11-28 18:57:17.937170', '2026-11-28 18:57:17.946687', NULL, NULL, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (3, 0, 'lock-3', 3, 0, 72168179831785, 'ended', 1, 1.0, 1.0, 'completed', 1, '2026-11-28 18:57:24.236448', '2026-11-28 18:57:24.464319', 1000, 100, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (3, 1, 'lock-39', 39, 0, 115978604515625, 'ended', 1, 1.0, 1.0, 'completed', 1, '2026-11-28 18:57:24.493546', '2026-11-28 18:57:24.563811', 1000, 100, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (3, 2, 'lock-30', 30, 0, 224652280195216, 'ended', 1, 1.0, 1.0, 'completed', 1, '2026-11-28 18:57:24.572846', '2026-11-28 18:57:24.596878', 1000, 100, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (3, 3, 'lock-24', 24, 0, 232706224700343, 'ended', 1, 0.0, 0.0, 'completed', 1, '2026-11-28 18:57:24.607699', '2026-11-28 18:57:24.633542', 1000, 100, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (4, 0, 'lock-10', 10, 0, 91220759579519, 'open', 1, NULL, NULL, NULL, NULL, '2026-11-28 18:57:24.716374', NULL, NULL, NULL, 'c5dda8ca8ce563b8223b94c4329894d2');
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (4, 1, 'lock-31', 31, 0, 39378625376240, 'waiting', 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (5, 0, 'lock-0', 0, 0, 7, 'ended', 1, 1.0, 1.0, 'completed', NULL, NULL, '2026-11-28 18:57:24.743363', 10, 2, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (5, 1, 'lock-1', 1, 0, 7, 'ended', 1, 0.0, 0.0, 'completed', NULL, NULL, '2026-11-28 18:57:24.743363', 10, 2, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (5, 2, 'lock-2', 2, 0, 7, 'ended', 1, NULL, 0.0, 'failed', NULL, NULL, '2026-11-28 18:57:24.743363', 10, 2, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (5, 3, 'lock-3', 3, 0, 7, 'ended', 1, 1.0, 1.0, 'completed', NULL, NULL, '2026-11-28 18:57:24.743363', 10, 2, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (6, 0, 'lock-0', 0, 0, 7, 'ended', 1, 1.0, 1.0, 'completed', NULL, NULL, '2026-11-28 18:57:24.874444', 10, 2, NULL);
INSERT INTO "result_episodes" ("run_id", "place", "task", "task_index", "sample", "seed", "state", "attempts", "reward", "value", "end", "steps", "started_at", "ended_at", "input_tokens", "output_tokens", "process") VALUES (7, 0, 'train-0', 0, 0, 7, 'ended', 1, 1.0, 1.0, 'completed', NULL, NULL, '2026-11-28 18:57:24.968996', 10, 2, NULL);
INSERT INTO "result_log" ("id", "at", "kind", "run_id", "by", "reason", "before", "after") VALUES (1, '2026-11-28 18:57:24.942423', 'removed', 6, 'alice', 'a mistake', NULL, NULL);
INSERT INTO "organizations" ("id", "owner_id", "name", "public", "created_at") VALUES (1, 5, 'guild', 1, '2026-11-28 18:56:48.407022');
INSERT INTO "organization_members" ("organization_id", "account_id", "role", "joined_at") VALUES (1, 2, 'owner', '2026-11-28 18:56:48.407022');
INSERT INTO "organization_members" ("organization_id", "account_id", "role", "joined_at") VALUES (1, 3, 'reader', '2026-11-28 18:56:48.469558');
INSERT INTO "organization_invitations" ("organization_id", "name", "account_id", "role", "invited_by", "expires_at") VALUES (1, 'carol', 4, 'reader', 'alice', '2026-12-12 18:56:48.455381');
INSERT INTO "account_identities" ("id", "account_id", "issuer", "subject", "email", "gave_admin", "linked_at", "used_at") VALUES (1, 5, 'http://127.0.0.1:46027', 'dora-at-provider', 'dora@example.org', 0, '2026-11-28 18:56:48.839075', '2026-11-28 18:56:48.839075');
INSERT INTO "pending_sign_ins" ("digest", "browser", "purpose", "account_id", "document", "expires_at") VALUES ('7ac34f72e66940674773a6971d804cca5ad15e712b9a6c34bbe4c9732e7ccd1d', 'aa14d7231cbfa6839a70bda98fbb69b6c9789ae4fd2af6cf618b1d3a5db5e04d', 'sign in', NULL, '{"redirect_uri":"http://127.0.0.1/login/openid/callback","nonce":"NlqbbHwUKozm_rS-rJOjfHzIsFlGEmnbPRzQG8-Zzhw","verifier":"D6CS2wzT8v1hW6hYGOth9ym3XCgbGukWIaqrRmREO5IBvlQJy2MHOI1Gsvismq1GQOAm11g48WMF514N8dCrs0","following":"/account","begun":1795892208.9869444}', '2026-11-28 19:11:48.987232');
INSERT INTO "hub_processes" ("id", "expires_at", "address") VALUES ('c5dda8ca8ce563b8223b94c4329894d2', 1.79589227320871329309e+09, NULL);
INSERT INTO "hub_processes" ("id", "expires_at", "address") VALUES ('c5dda8ca7b82f52a5775af5f063fc6df', 1.79589227327613282204e+09, NULL);
INSERT INTO "rate_counts" ("key", "period", "count", "expires_at") VALUES ('603e18ee73d0322f60a444b93ce9a61054ccdb43', 1995435, 4, 1795893300.0);
INSERT INTO "rate_counts" ("key", "period", "count", "expires_at") VALUES ('35890ce7ffe6bb81af30a43f47b57f1a85cb78fb', 498858, 1, 1795896000.0);
INSERT INTO "rate_counts" ("key", "period", "count", "expires_at") VALUES ('a007a2643de306a1ab4c64da1de6aa26fa34f911', 1995435, 1, 1795893300.0);
INSERT INTO "rate_counts" ("key", "period", "count", "expires_at") VALUES ('c682003df0ff3422ad78e16ca25dfe79abac6b0b', 1995435, 1, 1795893300.0);
INSERT INTO "training_runs" ("id", "key", "principal", "sender_key", "name", "public", "trainer", "config", "environments", "steps", "state", "reason", "attempt", "attempts", "next_batch", "points", "values", "size", "metrics", "last_step", "dropped", "rollouts", "created_at", "heard_at", "ended_at", "summary", "summary_upto", "summary_values") VALUES (1, '9cLARc3Xk_I2jZyH78fnUg', 'alice', 'sender-bq', 'a run', 0, 'unknown', '{}', '[{"name": "toss", "package": "alice/coin", "version": "1.0.0"}]', 9, 'finished', '', 'attempt-1', '[[0, 1795892209.747102]]', 1, 5, 5, 438, '["reward/mean"]', 5, 0, 1, '2026-11-28 18:56:49.747102', '2026-11-28 18:56:49.805959', '2026-11-28 18:56:49.805959', NULL, 0, 0);
INSERT INTO "training_batches" ("run_id", "number", "attempt", "digest", "points", "data") VALUES (1, 0, 0, 'c9d54c26797765c5a38ab791de4399d5503e3677d96893318888bfe930fca25c', 5, X'789CAB562A2E492D50B28A36D431D231D631D1318DD5512AC9CC4D0509E919E8A061A0646E6A49516672B19255B552516A7962518A7E6E6A621E54B911101B03B109109B0295D7D60200F18919CF');
INSERT INTO "training_rollouts" ("run_id", "number", "digest", "step", "environment", "task", "reward", "outcome", "data") VALUES (1, 1, '3e1ef554e548eaa03c32542c15f500ab721f0cf4a1e7a5f8060446fd4e42a7f7', 3, 'toss', 'task-7', '1', 'completed', X'789C654FC14A44310CFC95256757D4CB422F7E882C8FF01AD7605F5A9A74DDE5D17F372D82A0A7CE4C2633E90E2457AE59361283009655E101B4249EB4228BF39213AF77177E803B0CAB515CD06DCF8F4F2ED09A252A8497C10CF513C20E1C478A93E3C9975822DD209CFE17BC33A5B1BCF73EB3AD3981356F2591D7B883242E9550B3FC1954FAC21A47D91553A3798E87B0D1E6196F3BD8BDB80A1BA9E285C6464E43684AD5999F6DF3F3BF5696D26C31BA99CFE713E08330EA21D78321277D857EEEE7712A95D1E2D05A9509FB375928718F');
INSERT INTO "verified_runs" ("run_id", "harness", "harness_sha256", "host", "model", "base_url", "sealed", "most_tokens", "process") VALUES (1, 'ludus 0.1.0', '13281a81864085cf8d230d5ae48cb45d0afe8ae84f43f56001addc700b08ac69', '127.0.0.1:41221', 'm-1', NULL, NULL, 100000000, 'fb2b95ee9b870f0b71d66a26f6f5cd8c');
INSERT INTO "verified_runs" ("run_id", "harness", "harness_sha256", "host", "model", "base_url", "sealed", "most_tokens", "process") VALUES (2, 'ludus 0.1.0', '13281a81864085cf8d230d5ae48cb45d0afe8ae84f43f56001addc700b08ac69', '127.0.0.1:41221', 'm-1', NULL, NULL, 100000000, 'fb2b95ee9b870f0b71d66a26f6f5cd8c');
INSERT INTO "verified_calls" ("run_id", "place", "attempt", "number", "request", "answer", "status", "input_tokens", "output_tokens") VALUES (1, 0, 1, 1, 'dc5b793105825af228c0f8c401d3e01225064ede4c5ee06981aba2bdf371362b', '4c4224aff87a0b0d6124f1fac25a8d5490c574527d2e9cb9aa1c97007803d75c', 200, 11, 3);
INSERT INTO "verified_attempts" ("run_id", "place", "attempt", "ending", "output") VALUES (1, 0, 1, 'exit code 0', '');
INSERT INTO "match_boards" ("id", "package", "version", "sha256", "environment", "split", "seats", "numbers", "changes", "rated", "seat_advantage", "seat_low", "seat_high", "draw_share", "process") VALUES (1, 'ada/games', '1.0.0', '8aff45dcd4d7ad330e762abc443296c057fcca004efeb9020e3431c8194ea288', 'auction', 'test', '["red", "blue"]', 3, 4, 4, 3.43276703920142267634e+01, -2.65661634734271956403e+02, 3.34316975518300409922e+02, 3.98858673996948187578e-01, 'c5dda8ca8ce563b8223b94c4329894d2');
INSERT INTO "match_boards" ("id", "package", "version", "sha256", "environment", "split", "seats", "numbers", "changes", "rated", "seat_advantage", "seat_low", "seat_high", "draw_share", "process") VALUES (2, 'ada/games', '1.0.0', '8aff45dcd4d7ad330e762abc443296c057fcca004efeb9020e3431c8194ea288', 'duel', 'test', '["red", "blue"]', 1, 0, 0, NULL, NULL, NULL, NULL, 'c5dda8ca8ce563b8223b94c4329894d2');
INSERT INTO "match_entrants" ("id", "key", "board_id", "principal", "by_publisher", "is_script", "model", "harness", "declared", "registered", "state", "voided", "created_at", "deadline", "ended_at", "rating", "rating_low", "rating_high", "component", "wins", "draws", "losses", "removed_at", "removed_by", "removed_reason", "still_counts") VALUES (1, 'JjKe2YfCGG2_ly4KHwgg5A', 1, '(script)', 0, 1, 'weak', 'environment', '{"model":"weak","harness":"environment","options":{},"priceIn":null,"priceOut":null}', 0, 'ended', 0, '2026-11-28 18:57:25.225055', '2026-11-28 18:57:25.225055', NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, 1);
INSERT INTO "match_entrants" ("id", "key", "board_id", "principal", "by_publisher", "is_script", "model", "harness", "declared", "registered", "state", "voided", "created_at", "deadline", "ended_at", "rating", "rating_low", "rating_high", "component", "wins", "draws", "losses", "removed_at", "removed_by", "removed_reason", "still_counts") VALUES (2, '42FZUqkhIv8HnaFEXSk-tw', 1, '(script)', 0, 1, 'strong', 'environment', '{"model":"strong","harness":"environment","options":{},"priceIn":null,"priceOut":null}', 0, 'ended', 0, '2026-11-28 18:57:25.225055', '2026-11-28 18:57:25.225055', NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, 1);
INSERT INTO "match_entrants" ("id", "key", "board_id", "principal", "by_publisher", "is_script", "model", "harness", "declared", "registered", "state", "voided", "created_at", "deadline", "ended_at", "rating", "rating_low", "rating_high", "component", "wins", "draws", "losses", "removed_at", "removed_by", "removed_reason", "still_counts") VALUES (3, 'u7HagjeXg-fqNzC7xLA0oA', 1, 'alice', 0, 0, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 3, 'ended', 0, '2026-11-28 18:57:25.225055', '2026-12-05 18:57:25.225055', '2026-11-28 18:57:26.010262', 1.66929541267434069593e+03, 1.39191455325724496104e+03, 1.94667627209143643089e+03, 0, 2, 1, 0, NULL, NULL, NULL, 1);
INSERT INTO "match_entrants" ("id", "key", "board_id", "principal", "by_publisher", "is_script", "model", "harness", "declared", "registered", "state", "voided", "created_at", "deadline", "ended_at", "rating", "rating_low", "rating_high", "component", "wins", "draws", "losses", "removed_at", "removed_by", "removed_reason", "still_counts") VALUES (4, '0xAyfePszSSz5EcjElblhA', 1, 'bob', 0, 0, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 3, 'ended', 0, '2026-11-28 18:57:25.315202', '2026-12-05 18:57:25.315202', '2026-11-28 18:57:26.010262', 1.33070458732565930404e+03, 1.05332372790856356912e+03, 1.60808544674275503893e+03, 0, 0, 1, 2, NULL, NULL, NULL, 1);
INSERT INTO "match_entrants" ("id", "key", "board_id", "principal", "by_publisher", "is_script", "model", "harness", "declared", "registered", "state", "voided", "created_at", "deadline", "ended_at", "rating", "rating_low", "rating_high", "component", "wins", "draws", "losses", "removed_at", "removed_by", "removed_reason", "still_counts") VALUES (5, 'Xi84XsXOrZ0FyWLj8HCuJQ', 1, 'bob', 0, 0, 'cheat', 'h 1', '{"model":"cheat","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 3, 'ended', 0, '2026-11-28 18:57:26.058667', '2026-12-05 18:57:26.058667', '2026-11-28 18:57:26.093399', NULL, NULL, NULL, NULL, 0, 0, 0, '2026-11-28 18:57:26.103422', 'bob', 'a mistake', 1);
INSERT INTO "match_entrants" ("id", "key", "board_id", "principal", "by_publisher", "is_script", "model", "harness", "declared", "registered", "state", "voided", "created_at", "deadline", "ended_at", "rating", "rating_low", "rating_high", "component", "wins", "draws", "losses", "removed_at", "removed_by", "removed_reason", "still_counts") VALUES (6, 'hmo_ucjGk-LyeymzgRVaVA', 2, 'alice', 0, 0, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 4, 'open', 0, '2026-11-28 18:57:26.122671', '2026-12-05 18:57:26.122671', NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, 1);
INSERT INTO "match_entrants" ("id", "key", "board_id", "principal", "by_publisher", "is_script", "model", "harness", "declared", "registered", "state", "voided", "created_at", "deadline", "ended_at", "rating", "rating_low", "rating_high", "component", "wins", "draws", "losses", "removed_at", "removed_by", "removed_reason", "still_counts") VALUES (7, 'rH7gH29G6zYdCNrClLnKMQ', 2, 'bob', 0, 0, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 4, 'open', 0, '2026-11-28 18:57:26.138708', '2026-12-05 18:57:26.138708', NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, 1);
INSERT INTO "matches" ("id", "key", "board_id", "number", "first_id", "second_id", "state", "process", "score", "first_reward", "second_reward", "first_end", "second_end", "commitment", "opening", "created_at", "ended_at") VALUES (1, 'mjRx6-WZtkl_1IqCNX6wGA', 1, 1, 4, 3, 'ended', 'c5dda8ca8ce563b8223b94c4329894d2', 0.0, -1.0, 1.0, 'completed', 'completed', 'd154b05cc70da8765e986d609ae47dd3d5f155715c863f015541737857593b1f', '{"secret":"c4c38e5698807d06fefb56e6c0b4e039b5b2b66b70db9a92fcf2b6e20534a93b","environment":"auction","split":"test","count":30,"index":8,"task":"deal8","seed":197624366626371,"entrants":["0xAyfePszSSz5EcjElblhA","u7HagjeXg-fqNzC7xLA0oA"],"balances":[0,0]}', '2026-11-28 18:57:25.407799', '2026-11-28 18:57:25.513325');
INSERT INTO "matches" ("id", "key", "board_id", "number", "first_id", "second_id", "state", "process", "score", "first_reward", "second_reward", "first_end", "second_end", "commitment", "opening", "created_at", "ended_at") VALUES (2, 'QrSmPd_6DQUKB7Dh9L-3ig', 1, 2, 3, 4, 'ended', 'c5dda8ca8ce563b8223b94c4329894d2', 1.0, 1.0, -1.0, 'completed', 'completed', 'e729053d50ee57fcf6e96ca23b2a1bad73200440fc9769a43da5b43430acf008', '{"secret":"d77c82a562155290eae703cb2966b3eea21d2a5d12d9c99ecc6043b33dd32968","environment":"auction","split":"test","count":30,"index":11,"task":"deal11","seed":182260566276224,"entrants":["u7HagjeXg-fqNzC7xLA0oA","0xAyfePszSSz5EcjElblhA"],"balances":[-1,1]}', '2026-11-28 18:57:25.668926', '2026-11-28 18:57:25.707276');
INSERT INTO "matches" ("id", "key", "board_id", "number", "first_id", "second_id", "state", "process", "score", "first_reward", "second_reward", "first_end", "second_end", "commitment", "opening", "created_at", "ended_at") VALUES (3, 'XnlFOPcunsDZpgNSyLI5lg', 1, 3, 4, 3, 'ended', 'c5dda8ca8ce563b8223b94c4329894d2', 0.5, 0.0, 0.0, 'completed', 'completed', 'b0ce9546b80c85c65deaad51b5b82d759ff4299473d2a69b7e2a7e5b2cf9a088', '{"secret":"560e1a2fd725bd897f0ae1598e0f8f018f6049e34e89dd4b82997df0d73a3e6c","environment":"auction","split":"test","count":30,"index":6,"task":"deal6","seed":178604748330552,"entrants":["0xAyfePszSSz5EcjElblhA","u7HagjeXg-fqNzC7xLA0oA"],"balances":[0,0]}', '2026-11-28 18:57:25.939318', '2026-11-28 18:57:26.010262');
INSERT INTO "matches" ("id", "key", "board_id", "number", "first_id", "second_id", "state", "process", "score", "first_reward", "second_reward", "first_end", "second_end", "commitment", "opening", "created_at", "ended_at") VALUES (4, 'M7XcZbdqBMeVt0wRexe5Vw', 2, 1, 6, 7, 'open', 'c5dda8ca8ce563b8223b94c4329894d2', NULL, NULL, NULL, NULL, NULL, '7d38b7703ee6d6a289102c8d676afa383d168566b2fae57035830996a69f4cc4', '{"secret":"54ae2e9fed1f14883c9e4fb4e8ba18ea929dd8b7f81f272cca976d2493bb720b","environment":"duel","split":"test","count":30,"index":12,"task":"deal12","seed":164293439295353,"entrants":["hmo_ucjGk-LyeymzgRVaVA","rH7gH29G6zYdCNrClLnKMQ"],"balances":[0,0]}', '2026-11-28 18:57:26.172851', NULL);
INSERT INTO "match_log" ("id", "at", "entrant_id", "by", "reason") VALUES (1, '2026-11-28 18:57:26.103422', 5, 'bob', 'a mistake');
INSERT INTO "device_sign_ins" ("digest", "code_digest", "account_id", "state", "document", "address", "created_at", "expires_at", "asked_at") VALUES ('4185f96504cf24078d1d616f443e6fa0913635d9119ff01bff28a5a3fc80b7c1', 'c103b5bd9b1874286f6acd45b6f9b64ec54a09e1f61ef3142367ab893b619d67', NULL, 'pending', '{"name":"a laptop","scopes":["read"],"days":30}', 'testclient', '2026-11-28 18:56:49.695059', '2026-11-28 19:06:49.695059', NULL);
INSERT INTO "kept_rollouts" ("id", "owner", "name", "size", "lines", "index", "kept_at") VALUES ('bcbab30b72219905', 'alice', 'a.jsonl', 1610, 1, X'789C358FDD6EC3200C85DFC5D751142069425E65AA2613AC89853F11B2AAABFAEE33EB7685FD71EC73FC00676105B319346A30B39442EB61820E2206E21FEC3F8F143D83C37D3310173174B053AEEF58B99DF5B4682907DD2F6A1272EEC0BB4807AC6F0F8867305458C4C3150BCB7994A2FDDF924B329E02BB40E35FAEA41828B20E7C4ABB8B1FCC2B1E3B83CA654EDE6D776E385907856E585A78D1B7BCE9AC5BFA8DCC4FF654C9B6E9B3440EA3787F7647B2F432CB585E3EADF6B8FD61AC95426E7C584919BDE0685109E4BBEC682C5D6854F0BC3E7F00FE595BDA', '2026-11-28 18:56:49.835127');
INSERT INTO "kept_rollout_parts" ("file_id", "number", "data") VALUES ('bcbab30b72219905', 0, X'789CBD54DB4EC3300C7DE72BAA3C8184C6DA6A4242881F81A90AAD572252A74ADD5D34F5DF89BD6ED3B4758C81784A72629F1CDBB1D70A706EBCC30A90D453A4AC739F064B751FA9A6B64630F2DA2023A49BCF00AC9529043F6D65B0806540C6613F33608B867DBA2E1C6B674DBE62EB0AC499B4272832CD0CE3117B34903B149758CE86A0E2D3EB5A7967817DDB063C7B0743DAC80E97B4AAE5D260DD5246B01475B206F41D4A83D173937B53D38BB6E0E936BE7B7EE801D54D83BC3DC9ACC59C8CC32CD7D6CA5361CD3651CB3666107505DB9CF159FBB2E53CB25CB57E539ADE388C4E0D7367AEA5A077F089FE3A608D5E44F1B9087EA43FB95C7F72A5FEE4587FF267FAD3CBF5A757EA4F8FF5A7677F90FC67A8FBCFCA5BAEFE50653D2CB42FA49BE6DAB6200D30915F5DD50EFB30020F009EB05A80293F68D725303705602E016EF751AC3AE9BA7D4B8D47B1E4A217970C95ED1FC425DF894B876AF20FE2D293E2B8C2D47AEC2BBC9D4CE96EB06507F64CBE1FAED971A05B82C96F091EAF21989E4E653C9A749BC94CAD341267D54298D24AE88ACC836E1C1E5E75375F13BDF6D0');
CREATE INDEX ix_access_tokens_account_id ON access_tokens (account_id);
CREATE INDEX ix_account_identities_account_id ON account_identities (account_id);
CREATE INDEX ix_account_sessions_account_id ON account_sessions (account_id);
CREATE INDEX ix_audit_events_account ON audit_events (account);
CREATE INDEX ix_audit_events_actor ON audit_events (actor);
CREATE INDEX ix_device_sign_ins_account_id ON device_sign_ins (account_id);
CREATE INDEX ix_device_sign_ins_expires_at ON device_sign_ins (expires_at);
CREATE INDEX ix_kept_rollouts_owner ON kept_rollouts (owner, kept_at);
CREATE INDEX ix_match_entrants_principal ON match_entrants (principal, state);
CREATE INDEX ix_match_entrants_rating ON match_entrants (board_id, component, rating);
CREATE INDEX ix_match_entrants_state ON match_entrants (state, deadline);
CREATE INDEX ix_matches_first ON matches (first_id, state);
CREATE INDEX ix_matches_second ON matches (second_id, state);
CREATE INDEX ix_matches_state ON matches (state);
CREATE INDEX ix_organization_invitations_account_id ON organization_invitations (account_id);
CREATE INDEX ix_organization_members_account_id ON organization_members (account_id);
CREATE INDEX ix_package_tags_package_id ON package_tags (package_id);
CREATE INDEX ix_packages_catalog ON packages (updated_at, id, private);
CREATE INDEX ix_packages_owner ON packages (owner);
CREATE INDEX ix_packages_private ON packages (id) WHERE private = 1;
CREATE INDEX ix_pending_sign_ins_account_id ON pending_sign_ins (account_id);
CREATE INDEX ix_pending_sign_ins_expires_at ON pending_sign_ins (expires_at);
CREATE INDEX ix_rate_counts_expires_at ON rate_counts (expires_at);
CREATE INDEX ix_result_lines_mean ON result_lines (board_id, mean);
CREATE INDEX ix_result_runs_principal ON result_runs (principal, state);
CREATE INDEX ix_result_runs_state ON result_runs (state, deadline);
CREATE INDEX ix_training_runs_principal ON training_runs (principal, id);
CREATE INDEX ix_training_runs_public ON training_runs (public, id);
CREATE INDEX ix_versions_changed_at ON versions (changed_at);
CREATE INDEX ix_versions_sha256 ON versions (sha256);
COMMIT;
