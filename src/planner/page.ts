/** The program of the planner's page, bundled for browsers (scripts/page-bundle.mjs); also that of its worker. */
import { mountPlanner } from './mount.js';
import { serveTasks } from './worker.js';

if (typeof document === 'undefined') serveTasks();
else mountPlanner();
