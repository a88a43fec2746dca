# Recreates tests/validation/r/claims.csv: what R computes for the richer kinds of claims.
#
#   apt-get install r-base-core r-cran-survival r-cran-timereg
#   Rscript benchmarks/r/claims.R tests/validation/r
#
# The patients are those of `gbsg` in the same folder (R package survival). Additive hazards are
# timereg's `aalen` with constant effects; as it parts tied times at random, times are parted here by
# a ten-thousandth of a day for each patient. Scores of several variables are written out in base R.
suppressMessages({library(survival); library(timereg)})
out <- commandArgs(trailingOnly = TRUE)[1]
d <- read.csv(gzfile(file.path(out, "cohorts", "gbsg.csv.gz")))
lines <- character()
put <- function(name, values) {
  values <- paste(formatC(as.numeric(values), digits = 10, format = "g", width = 1), collapse = " ")
  lines <<- c(lines, paste(name, values, sep = ","))
}
z <- function(x) (x - mean(x)) / sd(x)

# Additive hazards: a mediator, the exposure, a covariate.
d$apart <- d$time + seq_len(nrow(d)) * 1e-4
d$m <- z(d$x.nodes); d$x <- as.numeric(d$x.hormon == max(d$x.hormon)); d$a <- z(d$x.age)
fit <- aalen(Surv(apart, status) ~ const(m) + const(x) + const(a), data = d, robust = 0)
put("additive.coef", fit$gamma)
put("additive.se", sqrt(diag(fit$var.gamma)))
path <- lm(m ~ x + a, data = d)
put("mediation.indirect", coef(path)[["x"]] * fit$gamma[1])
put("mediation.direct", fit$gamma[2])

# Log-rank test for trend over grades, and one degree of freedom of Cox's model.
found <- survdiff(Surv(time, status) ~ x.grade, data = d)
score <- seq_along(found$obs) - 1
put("trend.logrank", sum(score * (found$obs - found$exp))^2 / drop(score %*% found$var %*% score))
put("trend.cox", coef(coxph(Surv(time, status) ~ x.grade, data = d)))

# Nested models.
base <- coxph(Surv(time, status) ~ z(x.age) + z(x.size), data = d)
full <- coxph(Surv(time, status) ~ z(x.nodes) + z(x.pgr) + z(x.age) + z(x.size), data = d)
put("nested.chisq", 2 * (full$loglik[2] - base$loglik[2]))

# The treatment's effect on both sides of a biomarker, from one model.
d$high <- as.numeric(d$x.pgr > median(d$x.pgr))
fit <- coxph(Surv(time, status) ~ x * high + a, data = d)
V <- vcov(fit); b <- coef(fit)
put("within.high", c(b["x"] + b["x:high"],
                     sqrt(V["x", "x"] + V["x:high", "x:high"] + 2 * V["x", "x:high"])))
put("within.low", c(b["x"], sqrt(V["x", "x"])))

# Scores of several variables of a patient, as of several genes: the first five patients.
names <- c("x.age", "x.size", "x.grade", "x.nodes", "x.pgr", "x.er")
G <- as.matrix(d[, names])
set <- c("x.size", "x.nodes", "x.pgr")
put("score.mean_z", rowMeans(apply(G[, set], 2, z))[1:5])
put("score.weighted", (apply(G[, set], 2, z) %*% c(1, 2, -1))[1:5] / 4)
running <- function(x) {
  ranks <- rank(x)
  walk <- order(-ranks)
  hit <- names[walk] %in% set
  gain <- ifelse(hit, ranks[walk]^0.25, 0)
  sum(cumsum(gain) / sum(gain) - cumsum(!hit) / sum(!hit))
}
put("score.rank", apply(G, 1, running)[1:5])
writeLines(lines, file.path(out, "claims.csv"))
