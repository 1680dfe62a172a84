// How far the reading of a file is, in words and numbers.

export const STAGES = {
  extracting: "Extracting the text",
  recognising: "Recognising text in pictures",
  arranging: "Putting the text in order",
  reading: "Reading",
};

/** Before the model reads, pages are counted, or the pictures among them. @param {Job} job */
const isBefore = (job) => job.stage in STAGES && job.stage !== "reading";
export const share = (done, total) => (total ? Math.min(1, done / total) : 0);
export const percent = (now) => `${Math.floor(100 * now)} %`;

/** Of its stage. @param {Job} job */
export const done = (job) => (isBefore(job) ? share(job.pages_done, job.pages) : share(job.tokens_done, job.tokens));
