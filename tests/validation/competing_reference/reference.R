# The numbers that tests/validation/test_stat_competing.py compares with:
#   Rscript reference.R patients.csv > reference.json
# cmprsk::crr has Fine and Gray's own variance; cmprsk::cuminc has Gray's test; survival::finegray
# lets an event precede a censoring at the same time, as the code under test does (crr does not, so
# the two differ where times are tied: column month).
suppressMessages({library(cmprsk); library(survival)})
d <- read.csv(commandArgs(trailingOnly = TRUE)[1], stringsAsFactors = FALSE)
exact <- coxph.control(eps = 1e-11, toler.chol = 1e-12, iter.max = 100)

out <- character()
put <- function(name, x) {
  numbers <- formatC(as.numeric(x), digits = 12, format = "g", width = 1)
  out <<- c(out, sprintf('  "%s": [%s]', name, paste(numbers, collapse = ", ")))
}

X <- cbind(d$exposed, d$age)
for (when in c("time", "month")) {
  t <- d[[when]]
  for (cause in 1:2) {
    name <- function(what) sprintf("%s.%s.%d", what, when, cause)
    fit <- crr(t, d$status, X, failcode = cause, gtol = 1e-12, maxiter = 100)
    put(name("crr.coef"), fit$coef)
    put(name("crr.se"), sqrt(diag(fit$var)))
    long <- finegray(Surv(t, factor(d$status)) ~ exposed + age + id,
                     data = cbind(d, t = t, id = seq_len(nrow(d))), etype = as.character(cause))
    cox <- coxph(Surv(fgstart, fgstop, fgstatus) ~ exposed + age + cluster(id), data = long,
                 weights = fgwt, ties = "breslow", control = exact)
    put(name("finegray.coef"), coef(cox))
    put(name("finegray.se"), sqrt(diag(vcov(cox))))  # without the weights' own uncertainty
    cs <- coxph(Surv(t, d$status == cause) ~ exposed + age, data = d, ties = "efron",
                control = exact)
    put(name("cause_specific.coef"), coef(cs))
    put(name("cause_specific.se"), sqrt(diag(vcov(cs))))
  }
  for (groups in c("group", "exposed")) {
    name <- function(what) sprintf("%s.%s.%s", what, when, groups)
    found <- cuminc(t, d$status, d[[groups]])
    strata <- if (groups == "group") d$exposed else d$group
    put(name("gray"), t(found$Tests))  # statistic, p, df of cause 1, then of cause 2
    put(name("gray.stratified"), t(cuminc(t, d$status, d[[groups]], strata)$Tests))
    at <- timepoints(found, c(6, 12, 24, 36))
    put(name("incidence"), t(at$est))  # cause 1 group by group, then cause 2
    put(name("incidence.se"), sqrt(t(at$var)))
  }
}
cat("{\n", paste(out, collapse = ",\n"), "\n}\n", sep = "")
