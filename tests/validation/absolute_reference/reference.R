# Absolute risks by survival, riskRegression and base R (R 4.2.2, survival 3.5-3, riskRegression
# 2022.11.28), for tests/validation/test_absolute.py:
#   cd tests/validation/absolute_reference && Rscript reference.R > figures.csv
# patients.csv is simulated: whole months (ties), `exact` without ties, censoring that x and site
# drive, `y` a binary outcome. Errors named "jackknife" are derivatives by case weights.

suppressMessages(library(survival))
suppressMessages(library(riskRegression))
d <- read.csv("patients.csv")
d$id <- seq_len(nrow(d))
n <- nrow(d)
tau <- 24
put <- function(name, ...) cat(name, sprintf("%.12g", c(...)), sep = ",", fill = FALSE, "\n")
exactly <- coxph.control(eps = 1e-13, iter.max = 60, toler.chol = 1e-14)
jackknife <- function(f, h = 1e-3) {
  u <- sapply(seq_len(n), function(i) {
    up <- down <- rep(1, n)
    up[i] <- 1 + h
    down[i] <- 1 - h
    (f(up) - f(down)) / (2 * h)
  })
  sqrt(sum(u^2))
}

# Standardized risks, Efron's ties.
standardized <- function(w) {
  d$w <- w
  fit <- coxph(Surv(time, event) ~ g + x + b, d, weights = w, control = exactly)
  risk <- function(side) {
    new <- transform(d, g = side)
    r <- exp(predict(fit, new, type = "lp", reference = "zero"))
    curve <- basehaz(fit, centered = FALSE)
    weighted.mean(1 - exp(-max(curve$hazard[curve$time <= tau], 0) * r), w)
  }
  c(risk(1), risk(0))
}
put("standardized", standardized(rep(1, n)))
put("standardized_jackknife", jackknife(function(w) diff(rev(standardized(w)))))
whole <- transform(d, g = factor(g))
fit <- coxph(Surv(exact, event) ~ g + x + b, whole, x = TRUE, y = TRUE, control = exactly)
found <- ate(fit, data = whole, treatment = "g", times = tau, verbose = FALSE)
put("ate", found$meanRisk$estimate, found$diffRisk$estimate, found$diffRisk$se)
fit <- glm(y ~ g + x + b, binomial, whole, epsilon = 1e-14)
found <- ate(fit, data = whole, treatment = "g", verbose = FALSE)
put("ate_logistic", found$meanRisk$estimate, found$diffRisk$estimate, found$diffRisk$se)

# Weights for censoring, renewed before every event time.
moments <- sort(unique(d$time[d$event == 1]))
hazard_before <- function(formula) {
  fit <- coxph(formula, d, control = exactly)
  curve <- basehaz(fit, centered = FALSE)
  r <- exp(predict(fit, d, type = "lp", reference = "zero"))
  base <- sapply(moments, function(s) max(c(0, curve$hazard[curve$time < s])))
  outer(r, base)
}
weights <- exp(hazard_before(Surv(time, 1 - event) ~ g + x + b) -
               hazard_before(Surv(time, 1 - event) ~ g))
long <- survSplit(Surv(time, event) ~ ., d, cut = moments, episode = "at")
long$w <- weights[cbind(long$id, pmin(long$at, length(moments)))]
fit <- coxph(Surv(tstart, time, event) ~ g, long, weights = w, cluster = id, control = exactly)
put("weighted", coef(fit), sqrt(vcov(fit)))
curve <- survfit(Surv(tstart, time, event) ~ g, long, weights = w, id = id, robust = TRUE)
curve <- summary(curve, tau)
put("weighted_risk", 1 - curve$surv, curve$std.err)

# Hazards of censored patients multiplied by delta, exposed and reference.
doubted <- function(w, deltas) {
  risk <- function(side) {
    mine <- d$g == side
    p <- d[mine, ]
    v <- w[mine]
    delta <- if (side == 1) deltas[1] else deltas[2]
    curve <- survfit(Surv(time, event) ~ 1, p, weights = v)
    at <- function(t) c(1, curve$surv)[1 + findInterval(t, curve$time)]
    alive <- ifelse(p$event == 1 & p$time <= tau, 0,
                    ifelse(p$time >= tau, 1, (at(tau) / at(p$time))^delta))
    1 - weighted.mean(alive, v)
  }
  risk(1) - risk(0)
}
for (deltas in list(c(1, 1), c(2, 1), c(0.25, 3))) {
  name <- paste0("doubted_", deltas[1], "_", deltas[2])
  put(name, doubted(rep(1, n), deltas), jackknife(function(w) doubted(w, deltas)))
}
