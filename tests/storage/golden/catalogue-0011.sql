BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version" VALUES('0011');
CREATE TABLE answer_documents (
	answer_id VARCHAR(32) NOT NULL, 
	document_id VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_answer_documents PRIMARY KEY (answer_id, document_id), 
	CONSTRAINT fk_answer_documents_answer_id_answers FOREIGN KEY(answer_id) REFERENCES answers (id) ON DELETE CASCADE, 
	CONSTRAINT fk_answer_documents_document_id_documents FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE
);
INSERT INTO "answer_documents" VALUES('c4d7c21e77814d3ab4caa5654f80c9e7','97d4f797dce647a2895e21855f3dcaaa');
CREATE TABLE answers (
	id VARCHAR(32) NOT NULL, 
	conversation_id VARCHAR(32), 
	question TEXT NOT NULL, 
	text TEXT NOT NULL, 
	search_text TEXT NOT NULL, 
	body TEXT NOT NULL, 
	owner_id VARCHAR(32), 
	created_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_answers PRIMARY KEY (id), 
	CONSTRAINT fk_answers_conversation_id_conversations FOREIGN KEY(conversation_id) REFERENCES conversations (id) ON DELETE CASCADE
);
INSERT INTO "answers" VALUES('c4d7c21e77814d3ab4caa5654f80c9e7','00000000000000000000000000000000','Where?','Here.','where?
here.','{"text": "Here."}',NULL,'2026-11-28T01:56:55.702812+00:00');
CREATE TABLE blocks (
	id INTEGER NOT NULL, 
	document_id VARCHAR(32) NOT NULL, 
	ordinal INTEGER NOT NULL, 
	start INTEGER NOT NULL, 
	"end" INTEGER NOT NULL, 
	num_tokens INTEGER NOT NULL, 
	tokens BLOB NOT NULL, 
	boxes TEXT NOT NULL, 
	shard_id INTEGER NOT NULL, 
	index_in_shard INTEGER NOT NULL, 
	CONSTRAINT pk_blocks PRIMARY KEY (id), 
	CONSTRAINT uq_blocks_document_id_ordinal UNIQUE (document_id, ordinal), 
	CONSTRAINT fk_blocks_document_id_documents FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE, 
	CONSTRAINT fk_blocks_shard_id_shards FOREIGN KEY(shard_id) REFERENCES shards (id) ON DELETE CASCADE
);
INSERT INTO "blocks" VALUES(1795831015678284,'97d4f797dce647a2895e21855f3dcaaa',0,0,10,3,X'000001000200','[[0,0.1,0.2,0.3,0.4]]',1,0);
INSERT INTO "blocks" VALUES(1795831015678285,'97d4f797dce647a2895e21855f3dcaaa',1,10,20,3,X'010002000300','[[0,0.1,0.2,0.3,0.4]]',1,1);
INSERT INTO "blocks" VALUES(1795831015678286,'97d4f797dce647a2895e21855f3dcaaa',2,20,30,3,X'020003000400','[[0,0.1,0.2,0.3,0.4]]',1,2);
INSERT INTO "blocks" VALUES(1795831015690068,'97d4f797dce647a2895e21855f3dcaaa',3,30,40,3,X'030004000500','[[0,0.1,0.2,0.3,0.4]]',2,0);
INSERT INTO "blocks" VALUES(1795831015690069,'97d4f797dce647a2895e21855f3dcaaa',4,40,50,3,X'040005000600','[[0,0.1,0.2,0.3,0.4]]',2,1);
INSERT INTO "blocks" VALUES(1795831015690070,'97d4f797dce647a2895e21855f3dcaaa',5,50,60,3,X'050006000700','[[0,0.1,0.2,0.3,0.4]]',2,2);
CREATE TABLE collection_groups (
	collection_id VARCHAR(32) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	CONSTRAINT pk_collection_groups PRIMARY KEY (collection_id, name), 
	CONSTRAINT fk_collection_groups_collection_id_collections FOREIGN KEY(collection_id) REFERENCES collections (id) ON DELETE CASCADE
);
CREATE TABLE collection_readers (
	collection_id VARCHAR(32) NOT NULL, 
	user_id VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_collection_readers PRIMARY KEY (collection_id, user_id), 
	CONSTRAINT fk_collection_readers_collection_id_collections FOREIGN KEY(collection_id) REFERENCES collections (id) ON DELETE CASCADE, 
	CONSTRAINT fk_collection_readers_user_id_users FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
);
CREATE TABLE collections (
	id VARCHAR(32) NOT NULL, 
	name TEXT NOT NULL, 
	owner_id VARCHAR(32), 
	everyone BOOLEAN NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_collections PRIMARY KEY (id), 
	CONSTRAINT uq_collections_owner_id_name UNIQUE (owner_id, name)
);
INSERT INTO "collections" VALUES('d72fce6699c3487e9b20342e6b83c78c','Shelf',NULL,0,'2026-11-28T01:56:55.571764+00:00');
CREATE TABLE conversations (
	id VARCHAR(32) NOT NULL, 
	title TEXT NOT NULL, 
	owner_id VARCHAR(32), 
	created_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_conversations PRIMARY KEY (id)
);
INSERT INTO "conversations" VALUES('00000000000000000000000000000000','Talk',NULL,'2026-11-28T01:56:55.702008+00:00');
CREATE TABLE counters (
	name VARCHAR(32) NOT NULL, 
	next_value BIGINT NOT NULL, 
	CONSTRAINT pk_counters PRIMARY KEY (name)
);
INSERT INTO "counters" VALUES('document',2);
INSERT INTO "counters" VALUES('block',1795831015690071);
INSERT INTO "counters" VALUES('memory version',2);
CREATE TABLE document_properties (
	document_id VARCHAR(32) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	position INTEGER NOT NULL, 
	value TEXT NOT NULL, 
	folded TEXT NOT NULL, 
	number FLOAT, 
	by_hand BOOLEAN NOT NULL, 
	CONSTRAINT pk_document_properties PRIMARY KEY (document_id, name, position), 
	CONSTRAINT fk_document_properties_document_id_documents FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE
);
CREATE TABLE document_texts (
	document_id VARCHAR(32) NOT NULL, 
	text BLOB NOT NULL, 
	extras TEXT NOT NULL, 
	CONSTRAINT pk_document_texts PRIMARY KEY (document_id), 
	CONSTRAINT fk_document_texts_document_id_documents FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE
);
INSERT INTO "document_texts" VALUES('97d4f797dce647a2895e21855f3dcaaa',X'789CABA8201F00005A391C21','{}');
CREATE TABLE documents (
	id VARCHAR(32) NOT NULL, 
	source TEXT NOT NULL, 
	title TEXT NOT NULL, 
	search_text TEXT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	content_sha256 VARCHAR(64) NOT NULL, 
	stored_file TEXT, 
	num_pages INTEGER NOT NULL, 
	num_characters INTEGER NOT NULL, 
	num_tokens INTEGER NOT NULL, 
	num_blocks INTEGER NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	notes TEXT NOT NULL, 
	collection_id VARCHAR(32), 
	owner_id VARCHAR(32), 
	fingerprint VARCHAR(80) NOT NULL, 
	added_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_documents PRIMARY KEY (id), 
	CONSTRAINT ck_documents_state CHECK (state IN ('ingesting', 'ready', 'failed', 'cancelled')), 
	CONSTRAINT fk_documents_collection_id_collections FOREIGN KEY(collection_id) REFERENCES collections (id) ON DELETE SET NULL, 
	CONSTRAINT fk_documents_fingerprint_memory_fingerprints FOREIGN KEY(fingerprint) REFERENCES memory_fingerprints (digest)
);
INSERT INTO "documents" VALUES('97d4f797dce647a2895e21855f3dcaaa','report-1.pdf','Report 1','report 1
report-1.pdf','pdf','0000000000000000000000000000000000000000000000000000000000000001','1.pdf',2,60,18,6,6656,'ready','[]','d72fce6699c3487e9b20342e6b83c78c',NULL,'sha256:b4f27420ba41cfab7612ab0b9793ff108c4cb7d07a9886cf99b9858adfd161fe','2026-11-28T01:56:55.573295+00:00');
CREATE TABLE folder_files (
	folder_id VARCHAR(32) NOT NULL, 
	source TEXT NOT NULL, 
	document_id VARCHAR(32), 
	content_sha256 VARCHAR(64) NOT NULL, 
	stamp VARCHAR(80) NOT NULL, 
	next_document_id VARCHAR(32), 
	next_sha256 VARCHAR(64) NOT NULL, 
	next_stamp VARCHAR(80) NOT NULL, 
	error TEXT NOT NULL, 
	CONSTRAINT pk_folder_files PRIMARY KEY (folder_id, source), 
	CONSTRAINT fk_folder_files_folder_id_folders FOREIGN KEY(folder_id) REFERENCES folders (id) ON DELETE CASCADE, 
	CONSTRAINT fk_folder_files_document_id_documents FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE SET NULL, 
	CONSTRAINT fk_folder_files_next_document_id_documents FOREIGN KEY(next_document_id) REFERENCES documents (id) ON DELETE SET NULL
);
CREATE TABLE folders (
	id VARCHAR(32) NOT NULL, 
	path TEXT NOT NULL, 
	owner_id VARCHAR(32), 
	collection TEXT, 
	removed VARCHAR(8) NOT NULL, 
	watched BOOLEAN NOT NULL, 
	last_run_at VARCHAR(32), 
	report TEXT NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_folders PRIMARY KEY (id), 
	CONSTRAINT ck_folders_removed CHECK (removed IN ('keep', 'trash', 'delete'))
);
CREATE TABLE home (
	id VARCHAR(32) NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_home PRIMARY KEY (id)
);
INSERT INTO "home" VALUES('7817ad4ac0ce43248bc77229eaf30146','2026-11-28T01:56:55.533861+00:00');
CREATE TABLE jobs (
	id VARCHAR(32) NOT NULL, 
	document_id VARCHAR(32) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	stage VARCHAR(32) NOT NULL, 
	pages_done INTEGER NOT NULL, 
	pages_total INTEGER NOT NULL, 
	tokens_done INTEGER NOT NULL, 
	tokens_total INTEGER NOT NULL, 
	tokens_per_second FLOAT NOT NULL, 
	eta_seconds FLOAT, 
	error TEXT NOT NULL, 
	note TEXT NOT NULL, 
	cancel_requested BOOLEAN NOT NULL, 
	attempt INTEGER NOT NULL, 
	worker TEXT NOT NULL, 
	heartbeat_at VARCHAR(32), 
	created_at VARCHAR(32) NOT NULL, 
	started_at VARCHAR(32), 
	finished_at VARCHAR(32), 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT ck_jobs_kind CHECK (kind IN ('ingest', 'repair')), 
	CONSTRAINT ck_jobs_state CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')), 
	CONSTRAINT fk_jobs_document_id_documents FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE
);
INSERT INTO "jobs" VALUES('ef385e7690b84635a30054749ba9fa47','97d4f797dce647a2895e21855f3dcaaa','ingest','done','waiting',0,0,0,0,0.0,NULL,'','',0,1,'test','2026-11-28T01:56:55.582794+00:00','2026-11-28T01:56:55.577698+00:00','2026-11-28T01:56:55.582794+00:00','2026-11-28T01:56:55.697466+00:00');
CREATE TABLE memory_fingerprints (
	digest VARCHAR(80) NOT NULL, 
	fields TEXT NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_memory_fingerprints PRIMARY KEY (digest)
);
INSERT INTO "memory_fingerprints" VALUES('sha256:b4f27420ba41cfab7612ab0b9793ff108c4cb7d07a9886cf99b9858adfd161fe','{"block_size": "6", "weights": "w"}','2026-11-28T01:56:55.565570+00:00');
CREATE TABLE pages (
	document_id VARCHAR(32) NOT NULL, 
	number INTEGER NOT NULL, 
	label TEXT NOT NULL, 
	width FLOAT NOT NULL, 
	height FLOAT NOT NULL, 
	start INTEGER NOT NULL, 
	"end" INTEGER NOT NULL, 
	note TEXT NOT NULL, 
	CONSTRAINT pk_pages PRIMARY KEY (document_id, number), 
	CONSTRAINT fk_pages_document_id_documents FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE
);
INSERT INTO "pages" VALUES('97d4f797dce647a2895e21855f3dcaaa',0,'i',595.0,842.0,0,30,'');
INSERT INTO "pages" VALUES('97d4f797dce647a2895e21855f3dcaaa',1,'1',595.0,842.0,30,60,'no text');
CREATE TABLE shard_terms (
	term BIGINT NOT NULL, 
	shard_id INTEGER NOT NULL, 
	indices BLOB NOT NULL, 
	CONSTRAINT pk_shard_terms PRIMARY KEY (term, shard_id), 
	CONSTRAINT fk_shard_terms_shard_id_shards FOREIGN KEY(shard_id) REFERENCES shards (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
CREATE TABLE shard_vectors (
	shard_id INTEGER NOT NULL, 
	encoder VARCHAR(64) NOT NULL, 
	title TEXT NOT NULL, 
	vectors BLOB NOT NULL, 
	CONSTRAINT pk_shard_vectors PRIMARY KEY (shard_id), 
	CONSTRAINT fk_shard_vectors_shard_id_shards FOREIGN KEY(shard_id) REFERENCES shards (id) ON DELETE CASCADE
);
CREATE TABLE shards (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	document_id VARCHAR(32) NOT NULL, 
	name TEXT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	checksum VARCHAR(80) NOT NULL, 
	num_blocks INTEGER NOT NULL, 
	first_ordinal INTEGER NOT NULL, 
	first_block_id BIGINT NOT NULL, 
	CONSTRAINT uq_shards_document_id_first_ordinal UNIQUE (document_id, first_ordinal), 
	CONSTRAINT fk_shards_document_id_documents FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE, 
	CONSTRAINT uq_shards_name UNIQUE (name)
);
INSERT INTO "shards" VALUES(1,'97d4f797dce647a2895e21855f3dcaaa','97d4f797dce647a2895e21855f3dcaaa/752a958d0c2c43e6a9ba3ab470d312ec.kv',3328,'sha256:1967a7cb2396c6c16e65082f6a29bcdd134a483ccd4fc90b29671e6b33db7bca',3,0,1795831015678284);
INSERT INTO "shards" VALUES(2,'97d4f797dce647a2895e21855f3dcaaa','97d4f797dce647a2895e21855f3dcaaa/a41dde4973c34a82b16b05cb0ef99694.kv',3328,'sha256:00e10417156d056f69cc0b6f7568d708be154ddf8990cffc1583c33d983dc62c',3,3,1795831015690068);
CREATE TABLE shared_values (
	kind VARCHAR(16) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	until FLOAT NOT NULL, 
	CONSTRAINT pk_shared_values PRIMARY KEY (kind, "key")
);
CREATE TABLE title_keys (
	document_id VARCHAR(32) NOT NULL, 
	title TEXT NOT NULL, 
	packed BLOB NOT NULL, 
	CONSTRAINT pk_title_keys PRIMARY KEY (document_id), 
	CONSTRAINT fk_title_keys_document_id_documents FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE
);
CREATE TABLE user_groups (
	user_id VARCHAR(32) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	CONSTRAINT pk_user_groups PRIMARY KEY (user_id, name), 
	CONSTRAINT fk_user_groups_user_id_users FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
);
CREATE TABLE users (
	id VARCHAR(32) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	password_hash TEXT NOT NULL, 
	token_digest VARCHAR(64), 
	issuer TEXT, 
	subject TEXT, 
	created_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (id), 
	CONSTRAINT uq_users_name UNIQUE (name), 
	CONSTRAINT uq_users_token_digest UNIQUE (token_digest)
);
CREATE UNIQUE INDEX uq_users_issuer_subject ON users (issuer, subject);
CREATE UNIQUE INDEX uq_collections_common_name ON collections (name) WHERE owner_id IS NULL;
CREATE INDEX ix_shared_values_until ON shared_values (until);
CREATE INDEX ix_shared_values_kind_shared_values_owner_shared_values_until ON shared_values (kind, owner, until);
CREATE INDEX ix_user_groups_name ON user_groups (name);
CREATE INDEX ix_collection_readers_user_id ON collection_readers (user_id);
CREATE INDEX ix_collection_groups_name ON collection_groups (name);
CREATE INDEX ix_documents_added_at ON documents (added_at);
CREATE INDEX ix_documents_owner_id ON documents (owner_id);
CREATE INDEX ix_documents_content_sha256_documents_fingerprint ON documents (content_sha256, fingerprint);
CREATE INDEX ix_documents_collection_id ON documents (collection_id);
CREATE INDEX ix_answers_owner_id_answers_created_at ON answers (owner_id, created_at);
CREATE INDEX ix_answers_created_at ON answers (created_at);
CREATE INDEX ix_answers_conversation_id ON answers (conversation_id);
CREATE INDEX ix_document_properties_name_document_properties_folded ON document_properties (name, folded);
CREATE INDEX ix_folder_files_document_id ON folder_files (document_id);
CREATE INDEX ix_folder_files_next_document_id ON folder_files (next_document_id);
CREATE INDEX ix_jobs_state_jobs_created_at ON jobs (state, created_at);
CREATE INDEX ix_jobs_document_id ON jobs (document_id);
CREATE INDEX ix_answer_documents_document_id ON answer_documents (document_id);
CREATE INDEX ix_blocks_shard_id ON blocks (shard_id);
CREATE INDEX ix_shard_terms_shard_id ON shard_terms (shard_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('shards',2);
COMMIT;
