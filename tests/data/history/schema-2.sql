PRAGMA application_id = 1751609461;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE cell (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        matrix TEXT NOT NULL, scenario TEXT NOT NULL, kind TEXT NOT NULL, verdict TEXT NOT NULL, axes TEXT NOT NULL,
        signature TEXT NOT NULL, why TEXT NOT NULL, seconds REAL, stack TEXT NOT NULL, transports TEXT NOT NULL,
        facts TEXT NOT NULL, tool TEXT NOT NULL,
        UNIQUE (run, matrix, scenario)
    );
INSERT INTO "cell" VALUES(1,'20261120-141530-3f2a','aws','a-b-c','passed','ok','{"placement":"a"}','','',1.5,'Open MPI 5.0.11','["tcp","sm"]','{"ucx":"1.18.0","memory":"host"}','allreduce.py');
INSERT INTO "cell" VALUES(2,'20261120-141530-3f2a','aws','a-b-d','crash','new','{}','SIGSEGV@libuct.so','rank 0 died',0.0,'','[]','{}','');
INSERT INTO "cell" VALUES(3,'20261121-141530-aaaa','aws','a-b-c','passed','ok','{"placement":"a"}','','',1.5,'Open MPI 5.0.11','["tcp","sm"]','{"ucx":"1.18.0","memory":"host"}','allreduce.py');
INSERT INTO "cell" VALUES(4,'20261121-141530-aaaa','aws','a-b-d','crash','new','{}','SIGSEGV@libuct.so','rank 0 died',0.0,'','[]','{}','');
CREATE TABLE matrix (
        run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        name TEXT NOT NULL, file TEXT NOT NULL, sha256 TEXT NOT NULL,
        PRIMARY KEY (run, name)
    );
INSERT INTO "matrix" VALUES('20261120-141530-3f2a','aws','aws.yaml','0000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO "matrix" VALUES('20261121-141530-aaaa','aws','aws.yaml','0000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE measurement (
        cell INTEGER NOT NULL REFERENCES cell (id) ON DELETE CASCADE,
        metric TEXT NOT NULL, size INTEGER NOT NULL, dtype TEXT NOT NULL, place TEXT NOT NULL,
        ranks INTEGER NOT NULL, value REAL, unit TEXT NOT NULL, samples TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (cell, metric, size, dtype, place)
    ) WITHOUT ROWID
    ;
INSERT INTO "measurement" VALUES(1,'busbw',1024,'float32','',2,1.25,'GB/s','');
INSERT INTO "measurement" VALUES(1,'busbw',1024,'float32','in',2,1.5,'GB/s','[1.5,1.25,0.3333333333333333]');
INSERT INTO "measurement" VALUES(3,'busbw',1024,'float32','',2,1.25,'GB/s','');
INSERT INTO "measurement" VALUES(3,'busbw',1024,'float32','in',2,1.5,'GB/s','[1.5,1.25,0.3333333333333333]');
CREATE TABLE run (
        id TEXT PRIMARY KEY, folder TEXT NOT NULL, started REAL NOT NULL, machine TEXT NOT NULL, package TEXT NOT NULL
    );
INSERT INTO "run" VALUES('20261120-141530-3f2a','/r/x',1700000000.0,'h','0.1');
INSERT INTO "run" VALUES('20261121-141530-aaaa','/r/x',1700086400.0,'h','0.1');
COMMIT;
