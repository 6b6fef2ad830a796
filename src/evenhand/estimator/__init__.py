"""FairClassifier: models, cross-fitting and a rule behind scikit-learn's interface."""
