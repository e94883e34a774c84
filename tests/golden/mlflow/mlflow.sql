CREATE TABLE "experiments" (
	experiment_id INTEGER NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	artifact_location VARCHAR(256), 
	lifecycle_stage VARCHAR(32), 
	creation_time BIGINT, 
	last_update_time BIGINT, 
	workspace VARCHAR(63) DEFAULT 'default' NOT NULL, 
	CONSTRAINT experiment_pk PRIMARY KEY (experiment_id), 
	CONSTRAINT experiments_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), 
	CONSTRAINT uq_experiments_workspace_name UNIQUE (workspace, name)
);
INSERT INTO experiments VALUES (0, 'Default', '/logs/mlruns/0', 'active', 1794750599745, 1794750599745, 'default');
INSERT INTO experiments VALUES (1, 'tiny', '/logs/mlruns/1', 'active', 1794750599773, 1794750599773, 'default');
CREATE TABLE "runs" (
	run_uuid VARCHAR(32) NOT NULL, 
	name VARCHAR(250), 
	source_type VARCHAR(20), 
	source_name VARCHAR(500), 
	entry_point_name VARCHAR(50), 
	user_id VARCHAR(256), 
	status VARCHAR(9), 
	start_time BIGINT, 
	end_time BIGINT, 
	source_version VARCHAR(50), 
	lifecycle_stage VARCHAR(20), 
	artifact_uri VARCHAR(200), 
	experiment_id INTEGER, deleted_time BIGINT, 
	CONSTRAINT run_pk PRIMARY KEY (run_uuid), 
	CONSTRAINT source_type CHECK (source_type IN ('NOTEBOOK', 'JOB', 'LOCAL', 'UNKNOWN', 'PROJECT')), 
	CONSTRAINT runs_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), 
	FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id), 
	CHECK (status IN ('SCHEDULED', 'FAILED', 'FINISHED', 'RUNNING', 'KILLED'))
);
INSERT INTO runs VALUES ('b4f67ab4034a48f3b709aae27a5cd309', 'first', 'UNKNOWN', '', '', 'someone', 'FINISHED', 1794750599878, 1794750600117, '', 'active', '/logs/mlruns/1/b4f67ab4034a48f3b709aae27a5cd309/artifacts', 1, NULL);
INSERT INTO runs VALUES ('4ae1b6cdf18d444f8d24c43c3237e301', 'second', 'UNKNOWN', '', '', 'someone', 'FINISHED', 1794750600135, 1794750600289, '', 'active', '/logs/mlruns/1/4ae1b6cdf18d444f8d24c43c3237e301/artifacts', 1, NULL);
CREATE TABLE "metrics" (
	"key" VARCHAR(250) NOT NULL, 
	value FLOAT NOT NULL, 
	timestamp BIGINT NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	step BIGINT DEFAULT '0' NOT NULL, 
	is_nan BOOLEAN DEFAULT '0' NOT NULL, 
	CONSTRAINT metric_pk PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid), 
	CHECK (is_nan IN (0, 1))
);
INSERT INTO metrics VALUES ('train_loss', 3.0, 1794750599936, 'b4f67ab4034a48f3b709aae27a5cd309', 0, 0);
INSERT INTO metrics VALUES ('train_loss', 1.5, 1794750599982, 'b4f67ab4034a48f3b709aae27a5cd309', 1, 0);
INSERT INTO metrics VALUES ('val/loss', 1.6, 1794750599995, 'b4f67ab4034a48f3b709aae27a5cd309', 1, 0);
INSERT INTO metrics VALUES ('train_loss', 1.0, 1794750600014, 'b4f67ab4034a48f3b709aae27a5cd309', 2, 0);
INSERT INTO metrics VALUES ('train_loss', 0.75, 1794750600023, 'b4f67ab4034a48f3b709aae27a5cd309', 3, 0);
INSERT INTO metrics VALUES ('val/loss', 0.8, 1794750600035, 'b4f67ab4034a48f3b709aae27a5cd309', 3, 0);
INSERT INTO metrics VALUES ('train_loss', 0.0, 1794750600055, 'b4f67ab4034a48f3b709aae27a5cd309', 4, 1);
INSERT INTO metrics VALUES ('train_loss', 0.5, 1794750600073, 'b4f67ab4034a48f3b709aae27a5cd309', 5, 0);
INSERT INTO metrics VALUES ('val/loss', 0.5333333333333333, 1794750600087, 'b4f67ab4034a48f3b709aae27a5cd309', 5, 0);
INSERT INTO metrics VALUES ('big', 1.7976931348623157e+308, 1794750600101, 'b4f67ab4034a48f3b709aae27a5cd309', 5, 0);
INSERT INTO metrics VALUES ('train_loss', 3.0, 1794750600160, '4ae1b6cdf18d444f8d24c43c3237e301', 0, 0);
INSERT INTO metrics VALUES ('train_loss', 1.5, 1794750600176, '4ae1b6cdf18d444f8d24c43c3237e301', 1, 0);
INSERT INTO metrics VALUES ('val/loss', 1.6, 1794750600190, '4ae1b6cdf18d444f8d24c43c3237e301', 1, 0);
INSERT INTO metrics VALUES ('train_loss', 1.0, 1794750600200, '4ae1b6cdf18d444f8d24c43c3237e301', 2, 0);
INSERT INTO metrics VALUES ('train_loss', 0.75, 1794750600214, '4ae1b6cdf18d444f8d24c43c3237e301', 3, 0);
INSERT INTO metrics VALUES ('val/loss', 0.8, 1794750600228, '4ae1b6cdf18d444f8d24c43c3237e301', 3, 0);
INSERT INTO metrics VALUES ('train_loss', 0.0, 1794750600246, '4ae1b6cdf18d444f8d24c43c3237e301', 4, 1);
INSERT INTO metrics VALUES ('train_loss', 0.5, 1794750600254, '4ae1b6cdf18d444f8d24c43c3237e301', 5, 0);
INSERT INTO metrics VALUES ('val/loss', 0.5333333333333333, 1794750600265, '4ae1b6cdf18d444f8d24c43c3237e301', 5, 0);
INSERT INTO metrics VALUES ('big', 1.7976931348623157e+308, 1794750600280, '4ae1b6cdf18d444f8d24c43c3237e301', 5, 0);
CREATE TABLE "params" (
	"key" VARCHAR(250) NOT NULL, 
	value VARCHAR(8000) NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	CONSTRAINT param_pk PRIMARY KEY ("key", run_uuid), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)
);
INSERT INTO params VALUES ('lr', '0.1', 'b4f67ab4034a48f3b709aae27a5cd309');
INSERT INTO params VALUES ('batch', '32', 'b4f67ab4034a48f3b709aae27a5cd309');
INSERT INTO params VALUES ('lr', '0.1', '4ae1b6cdf18d444f8d24c43c3237e301');
INSERT INTO params VALUES ('batch', '32', '4ae1b6cdf18d444f8d24c43c3237e301');
