# Figures of delayed entry by survival (R 4.2.2, survival 3.5-3), for tests/validation/test_entry.py:
#   cd tests/validation/entry_reference && Rscript reference.R > figures.csv
# patients.csv is simulated: whole months of entry and exit, event (st: 2 competing), two covariates.

library(survival)
d <- read.csv("patients.csv")
d$id <- seq_len(nrow(d))
put <- function(name, ...) cat(name, sprintf("%.12g", c(...)), sep = ",", fill = FALSE, "\n")
exactly <- coxph.control(eps = 1e-12, iter.max = 50, toler.chol = 1e-13)
y <- Surv(d$entry, d$time, d$event)
when <- c(5, 12, 20, 36)
fit <- coxph(y ~ g + x, d, control = exactly)
put("cox", coef(fit), sqrt(diag(vcov(fit))))
put("schoenfeld", cox.zph(fit, "km", terms = FALSE)$table[, 1])
layered <- coxph(y ~ g + x + strata(site), d, control = exactly)
put("stratified", coef(layered), sqrt(diag(vcov(layered))))
put("robust", sqrt(diag(vcov(coxph(y ~ g + x, d, cluster = site * 100 + x, control = exactly)))))
curve <- summary(survfit(y ~ 1, d, conf.type = "log-log"), when)
put("survival", curve$surv)
put("lower", curve$lower)
put("upper", curve$upper)
put("logrank", coxph(y ~ g, d, ties = "exact")$score,
    coxph(y ~ g + strata(site), d, ties = "exact")$score)
for (part in 1:2) {
  early <- part == 1
  p <- if (early) subset(d, entry < 15) else subset(d, time > 15)
  if (early) p$event <- p$event * (p$time <= 15)
  if (early) p$time <- pmin(p$time, 15) else p$entry <- pmax(p$entry, 15)
  fit <- coxph(Surv(entry, time, event) ~ g, p, control = exactly)
  put(paste0("period", part), coef(fit), sqrt(vcov(fit)))
}
states <- survfit(Surv(entry, time, factor(st, 0:2)) ~ 1, d, id = id)
put("incidence", summary(states, when)$pstate[, 2])
wide <- finegray(Surv(entry, time, factor(st, 0:2)) ~ ., d, id = id)
fit <- coxph(Surv(fgstart, fgstop, fgstatus) ~ g + x, wide, weights = fgwt, ties = "breslow",
             control = exactly)
put("fine_gray", coef(fit), sqrt(diag(vcov(fit))))
