"""The other side of ``postprocessors.ErrorParity``: reads a job's path from each line, writes decisions."""

import json
import logging
import sys
import time
import warnings

import numpy as np
from error_parity import RelaxedThresholdOptimizer


def answer(path):
    """Fit and decide for every tolerance of a job; return the times, and the accuracy expected on the job's rows."""
    job = dict(np.load(path))
    decisions, accuracy, fitting, predicting = [], [], 0.0, 0.0
    for tolerance in job["tolerances"]:
        started = time.process_time()
        fair = RelaxedThresholdOptimizer(
            predictor=lambda X: X[:, 0],
            constraint=str(job["criterion"]),
            tolerance=float(tolerance),
            seed=int(job["seed"]),
        )
        fair.fit(X=job["p_y"][:, None], y=job["y"], group=job["group"])
        fitted = time.process_time()
        accuracy.append(1.0 - float(fair.cost(false_pos_cost=1.0, false_neg_cost=1.0)))
        decisions.append(fair.predict(job["test_p_y"][:, None], group=job["test_group"]))
        fitting += fitted - started
        predicting += time.process_time() - fitted
    np.savez(path, decisions=np.array(decisions).astype(int))
    predicting /= len(job["tolerances"])
    return {"fit_seconds": fitting, "predict_seconds": predicting, "accuracy": accuracy}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(line.strip())), file=out, flush=True)
