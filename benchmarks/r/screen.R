# One Cox model per feature by survival's inner fitting function, without the cost of formulas.
#   Rscript screen.R table.csv COVARIATES
# table.csv: time, event, then COVARIATES covariates, then the features. Prints elapsed and
# processor seconds, then each feature's coefficient.
suppressMessages(library(survival))
given <- commandArgs(trailingOnly = TRUE)
d <- as.matrix(read.csv(given[1]))
covariates <- as.integer(given[2])
y <- Surv(d[, 1], d[, 2])
fixed <- d[, 2 + seq_len(covariates), drop = FALSE]
features <- d[, -seq_len(2 + covariates), drop = FALSE]
control <- coxph.control()
fit <- function(j) coxph.fit(cbind(features[, j], fixed), y, strata = NULL, control = control,
                             method = "efron", rownames = NULL, resid = FALSE)
invisible(fit(1))
spent <- system.time(found <- sapply(seq_len(ncol(features)), function(j) fit(j)$coefficients[1]))
cat(spent[["elapsed"]], spent[["user.self"]] + spent[["sys.self"]], "\n")
cat(format(found, digits = 15), sep = "\n")
