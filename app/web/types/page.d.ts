// What the modules of the page tell each other, and what the server tells of its work.

/** A file on its way into the memory: `Job` of retrieval/types/records.py. */
interface Job {
  id: string;
  source: string;
  state: "queued" | "running" | "done" | "failed" | "cancelled";
  stage: string;
  pages_done: number;
  pages: number;
  tokens_done: number;
  tokens: number;
  tokens_per_second: number;
  eta_seconds: number | null;
  seconds: number;
  error: string;
  note: string;
  cancelling: boolean;
}

/** A file that waits to be started: `StagedFile.shown` of app/api/uploads.py. */
interface Upload {
  id: string;
  name: string;
  state: string;
}

interface DocumentEventMap {
  "cairn:view": CustomEvent<{ view: string; answer?: string }>;
  "cairn:files": CustomEvent<{ uploads: Upload[]; jobs: Job[] }>;
}
