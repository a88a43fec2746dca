# ---- The analysis. Nothing below depends on the contract; the list `plan` above says what is done.

suppressPackageStartupMessages(library(survival))

file <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE))
here <- if (length(file)) dirname(file) else "."
types <- read.csv(file.path(here, "columns.csv"), colClasses = "character")
data <- read.csv(file.path(here, "table.csv"), check.names = FALSE, na.strings = "",
                 colClasses = setNames(types$class, types$column))
result <- data.frame(key = character(), value = numeric())
skipped <- character()
put <- function(key, value) {
  if (length(value) == 1 && is.finite(value)) result[nrow(result) + 1, ] <<- list(key, value)
}

matches <- function(column, filter) {
  known <- !is.na(column)
  if (filter$op == "present") return(known)
  if (filter$op %in% c("eq", "ne", "in")) {
    same <- tolower(as.character(column)) %in% tolower(filter$values)
    return(known & (if (filter$op == "ne") !same else same))
  }
  value <- as.numeric(filter$values)
  number <- as.numeric(column)
  known & switch(filter$op, lt = number < value, le = number <= value,
                 gt = number > value, ge = number >= value)
}
outcome_of <- function(rows, endpoint) {
  if (plan$kinds[[endpoint]] %in% c("survival", "competing")) {
    found <- list(time = rows[[paste0(endpoint, ".time")]],
                  event = rows[[paste0(endpoint, ".event")]])
    found$entry <- rows[[paste0(endpoint, ".entry")]]  # left out if everyone enters at time 0
    found
  } else list(value = rows[[paste0(endpoint, ".value")]])
}

# Population: filters, known exposures, known primary outcome.
keep <- rep(TRUE, nrow(data))
for (filter in plan$filters) keep <- keep & matches(data[[filter$variable]], filter)
for (use in plan$exposures) keep <- keep & !is.na(data[[use$key]])
keep <- keep & !is.na(outcome_of(data, plan$primary_endpoint)[[1]])
rows <- data[keep, , drop = FALSE]

# Logarithms and percentiles of an exposure, where the contract asks for them.
for (use in plan$exposures) if (!is.null(use$rescale)) {
  x <- rows[[use$key]]
  rows[[use$key]] <- switch(use$rescale, log2 = log2(x), log2_plus_1 = log2(x + 1),
                            rank = (rank(x) - 0.5) / length(x))
}
products <- c("interaction", "predictive", "modification")

# Cut-points, found in the population from the exposure alone unless they were handed over.
find_cut <- function(x, use) {
  if (!is.null(use$cut)) return(use$cut)
  known <- x[!is.na(x)]
  cut <- list(mean = mean(known), sd = sd(known))
  if (plan$comparison == "trend") {
    cut$points <- switch(use$rule, levels = head(sort(unique(known)), -1),
                         tertile = quantile(known, c(1, 2) / 3, names = FALSE),
                         quartile = quantile(known, 1:3 / 4, names = FALSE))
    return(cut)
  }
  if (use$rule %in% c("continuous", "spline", "optimal")) return(cut)
  below_top <- function(value) if (value == max(known)) max(known[known < max(known)]) else value
  if (setequal(unique(known), c(0, 1))) {
    cut$lower <- cut$upper <- 0.5
  } else if (use$rule == "median") {
    cut$lower <- cut$upper <- below_top(median(known))
  } else if (use$rule == "tertile") {
    thirds <- quantile(known, c(1, 2) / 3, names = FALSE)
    cut$upper <- below_top(thirds[2])
    cut$lower <- min(thirds[1], cut$upper)
  } else cut$lower <- cut$upper <- use$threshold
  cut
}
flat <- function(use) {
  use$rule %in% c("continuous", "spline", "optimal") || plan$comparison == "per_doubling"
}
step <- function(x, cut, use) {
  found <- rowSums(outer(x, unlist(cut$points), ">"))
  if (use$level == "low") length(cut$points) - found else found
}
score <- function(x, cut, use) {
  unit <- if (plan$comparison == "per_doubling") 1 else cut$sd
  (if (use$level == "low") -1 else 1) * (x - cut$mean) / unit
}
exposed_side <- function(x, cut, level) {
  as.numeric(if (level == "high") x > cut$upper else x <= cut$lower)
}
predicted <- function(x, use) {  # risks by a published score
  given <- plan$calibration
  if (given$values == "risk") return(if (use$level == "low") 1 - x else x)
  if (use$level == "low") x <- -x
  risk <- if (is.null(given$baseline)) plogis(x) else 1 - given$baseline^exp(x)
  pmin(pmax(risk, 1e-9), 1 - 1e-9)
}
cuts <- lapply(plan$exposures, function(use) find_cut(rows[[use$key]], use))
parts_of <- function(rows) Map(function(use, cut) {
  x <- rows[[use$key]]
  if (plan$comparison == "trend") step(x, cut, use)
  else if (plan$comparison == "calibrated") predicted(x, use)
  else if (flat(use)) score(x, cut, use) else exposed_side(x, cut, use$level)
}, plan$exposures, cuts)
exposure_of <- function(rows, parts) {
  first <- plan$exposures[[1]]
  if (plan$comparison %in% products) return(parts[[1]] * parts[[2]])
  if (plan$comparison %in% c("trend", "calibrated")) return(parts[[1]])
  if (plan$comparison %in% c("mediation", "added")) return(parts[[2]])
  if (plan$comparison == "combined") {
    return(as.numeric(scale(rowSums(vapply(parts, function(x) as.numeric(scale(x)), parts[[1]])))))
  }
  if (plan$comparison == "per_sd" || flat(first)) {
    return(score(rows[[first$key]], cuts[[1]], first))
  }
  exposure <- Reduce(`*`, parts)
  if (plan$comparison == "extremes") {
    other <- c(high = "low", low = "high")
    opposite <- Reduce(`*`, Map(function(use, cut) {
      exposed_side(rows[[use$key]], cut, other[[use$level]])
    }, plan$exposures, cuts))
    exposure[exposure != 1 & opposite != 1] <- NA
  }
  exposure
}
parts <- parts_of(rows)

# Start and stop records of an endpoint, where values became known during follow-up.
records_of <- function(endpoint) {
  end <- outcome_of(rows, endpoint)$time
  mine <- rows[!is.na(end) & end > 0, , drop = FALSE]
  mine$person. <- seq_len(nrow(mine))
  base <- data.frame(person. = mine$person., time. = outcome_of(mine, endpoint)$time,
                     event. = as.numeric(outcome_of(mine, endpoint)$event == 1))
  split <- tmerge(base, base, id = person., happened. = event(time., event.))
  for (use in plan$late) {
    since <- data.frame(person. = mine$person., when. = mine[[use$since]])
    split <- tmerge(split, since, id = person., known. = tdc(when.))
    now <- mine[[use$key]][split$person.]
    before <- if (is.numeric(now)) as.numeric(use$before) else use$before
    split[[paste0("value ", use$key)]] <- ifelse(split$known. == 1, now, before)
    split$known. <- NULL
  }
  found <- mine[split$person., , drop = FALSE]
  for (use in plan$late) found[[use$key]] <- split[[paste0("value ", use$key)]]
  entry <- outcome_of(found, endpoint)$entry
  found[[paste0(endpoint, ".entry")]] <- if (is.null(entry)) split$tstart else pmax(entry, split$tstart)
  found[[paste0(endpoint, ".time")]] <- split$tstop
  found[[paste0(endpoint, ".event")]] <- split$happened.
  found[outcome_of(found, endpoint)$entry < split$tstop, , drop = FALSE]
}

# Covariates: z-scores, or indicators against the most frequent level; rare and constant ones go.
design <- function(rows, covariates, keep) {
  columns <- list()
  for (key in covariates) {
    x <- rows[[key]][keep]
    if (is.numeric(x)) {
      columns[[key]] <- if (isTRUE(sd(x) > 0)) (x - mean(x)) / sd(x) else x
    } else {
      counts <- table(x)
      ordered <- names(counts)[order(-as.integer(counts), names(counts), method = "radix")]
      for (level in ordered[-1]) if (counts[[level]] >= 5) {
        columns[[paste(key, level)]] <- as.numeric(x == level)
      }
    }
  }
  columns[vapply(columns, function(x) length(unique(x)) > 1, TRUE)]
}
frame_of <- function(test) {
  if (length(plan$late)) rows <- records_of(test$endpoint)
  parts <- parts_of(rows)
  exposure <- exposure_of(rows, parts)
  keep <- !is.na(exposure)
  for (part in outcome_of(rows, test$endpoint)) keep <- keep & !is.na(part)
  for (key in c(test$covariates, test$strata)) keep <- keep & !is.na(rows[[key]])
  if (!is.null(test$subgroup)) keep <- keep & matches(rows[[test$subgroup$variable]], test$subgroup)
  columns <- list(exposure[keep])
  if (!is.null(test$within)) {
    mine <- parts[[test$within$exposure]]
    other <- parts[[3 - test$within$exposure]]
    side <- if (test$within$other == "exposed") 1 else if (all(other %in% 0:1)) 0 else -1
    columns <- lapply(list(mine, other, mine * (other - side)), function(x) x[keep])
  } else if (plan$comparison %in% c("mediation", "added")) {
    columns <- c(columns, list(parts[[1]][keep]))
  } else if (plan$comparison %in% products) {
    columns <- c(columns, lapply(parts, function(x) x[keep]))
  }
  columns <- c(columns, design(rows, test$covariates, keep))
  outcome <- lapply(outcome_of(rows, test$endpoint), function(x) x[keep])
  layer <- if (length(test$strata)) {
    do.call(paste, c(rows[keep, test$strata, drop = FALSE], sep = "\r"))
  } else rep("all", sum(keep))
  person <- if (nzchar(plan$cluster)) rows[[plan$cluster]][keep]
  followed <- length(plan$late) > 0
  list(X = unname(do.call(cbind, columns)), outcome = outcome,
       terms = unname(do.call(cbind, lapply(parts, function(x) x[keep]))), layer = layer, person = person,
       n = if (followed) length(unique(rows$person.[keep])) else sum(keep))
}
response <- function(f) {
  event <- as.numeric(f$outcome$event == 1)
  if (is.null(f$outcome$entry)) Surv(f$outcome$time, event)
  else Surv(f$outcome$entry, f$outcome$time, event)
}
# The log-rank test; survdiff() knows no delayed entry, with which it is summed here.
logrank <- function(f, group, trend = FALSE) {
  y <- response(f)
  if (ncol(y) == 2 && !trend) return(survdiff(y ~ group + strata(f$layer))$chisq)
  entry <- if (ncol(y) == 3) y[, 1] else rep(-1, nrow(y))
  time <- y[, ncol(y) - 1]
  event <- y[, ncol(y)] == 1
  score <- if (trend) cbind(group) else outer(group, sort(unique(group))[-1], "==") + 0
  off <- numeric(ncol(score))
  spread <- matrix(0, ncol(score), ncol(score))
  for (layer in unique(f$layer)) for (moment in unique(time[event & f$layer == layer])) {
    there <- f$layer == layer & entry < moment & time >= moment
    failed <- there & event & time == moment
    n <- sum(there)
    d <- sum(failed)
    x <- score[there, , drop = FALSE]
    off <- off + colSums(score[failed, , drop = FALSE]) - d * colMeans(x)
    if (n > 1) spread <- spread + d * (n - d) / (n - 1) * crossprod(sweep(x, 2, colMeans(x))) / n
  }
  drop(off %*% solve(spread, off))
}
model <- function(f, X = f$X) {
  y <- response(f)
  coxph(y ~ X + strata(f$layer), cluster = f$person, ties = "efron",
        control = coxph.control(eps = 1e-12, iter.max = 50, toler.chol = 1e-13))
}
put_effect <- function(id, coef, se, df = Inf, ratio = TRUE) {
  z <- qt(0.975, df)
  shape <- if (ratio) exp else identity
  put(paste0(id, ".effect"), shape(coef))
  put(paste0(id, ".lower"), shape(coef - z * se))
  put(paste0(id, ".upper"), shape(coef + z * se))
}
put_counts <- function(id, f) {
  put(paste0(id, ".n"), f$n)
  if (!is.null(f$outcome$event)) put(paste0(id, ".events"), sum(f$outcome$event == 1))
}
# A published score: two one-sided tests against margins, observed risk, and calibration slope.
outside <- function(value, se, margins) {
  min(1, 2 * pnorm(-min(value - margins[1], margins[2] - value) / se))
}
put_equal <- function(id, f, values, p) {
  for (at in 1:3) put(paste0(id, ".", c("effect", "lower", "upper")[at]), values[at])
  put(paste0(id, ".p"), p)
  put(paste0(id, ".n"), f$n)
  put(paste0(id, ".events"), sum(until(f)))
}
until <- function(f) {
  if (is.null(f$outcome$event)) return(f$outcome$value == 1)
  f$outcome$event == 1 & f$outcome$time <= plan$calibration$horizon
}
observed_risk <- function(f, keep = rep(TRUE, f$n)) {
  if (is.null(f$outcome$event)) {
    share <- mean(f$outcome$value[keep] == 1)
    return(list(risk = share, se = sqrt(share * (1 - share) / sum(keep))))
  }
  fit <- survfit(Surv(f$outcome$time[keep], f$outcome$event[keep] == 1) ~ 1)
  found <- summary(fit, plan$calibration$horizon, extend = TRUE)
  list(risk = 1 - found$surv, se = found$std.err)
}
recalibrated <- function(f) {
  risk <- f$X[, 1]
  if (is.null(f$outcome$event)) {
    fit <- glm(f$outcome$value ~ qlogis(risk), family = binomial, epsilon = 1e-12)
    return(summary(fit)$coefficients[2, 1:2])
  }
  linear <- log(-log(1 - risk))
  fit <- coxph(Surv(pmin(f$outcome$time, plan$calibration$horizon), until(f)) ~ linear,
               control = coxph.control(eps = 1e-12, iter.max = 50, toler.chol = 1e-13))
  c(coef(fit)[[1]], sqrt(vcov(fit)[1, 1]))
}
# Firth's penalty (Firth 1993; Heinze and Schemper 2001): half the logarithm of the information's
# determinant is added to the log likelihood. `loglik` gives both at coefficients b.
firth <- function(id, k, loglik, p = TRUE, profile = TRUE) {
  penalized <- function(b) sum(loglik(b)[1] + loglik(b)[2] / 2)
  best <- function(fixed = NULL) {
    free <- if (is.null(fixed)) k else k - 1
    at <- function(b) if (is.null(fixed)) b else c(fixed, b)
    if (free == 0) return(list(par = fixed, value = penalized(fixed)))
    from <- if (is.null(fixed) || is.null(top)) rep(0, free) else top$par[-1]
    for (again in 1:3) {
      found <- optim(from, function(b) -penalized(at(b)), method = "BFGS",
                     control = list(reltol = 1e-15, maxit = 500, ndeps = rep(1e-4, free)))
      from <- found$par
    }
    list(par = at(found$par), value = -found$value)
  }
  top <- NULL
  top <- best()
  if (!profile) return(top$par)
  fall <- function(b) 2 * (top$value - best(b)$value) - qchisq(0.95, 1)
  limit <- function(side) {
    far <- 0.5
    while (fall(top$par[1] + side * far) < 0 && far < 30) far <- 2 * far
    if (far >= 30) return(side * Inf)
    near <- if (far > 0.5) far / 2 else 0
    uniroot(fall, sort(top$par[1] + side * c(near, far)), tol = 1e-9)$root
  }
  put(paste0(id, ".effect"), exp(top$par[1]))
  put(paste0(id, ".lower"), exp(limit(-1)))
  put(paste0(id, ".upper"), exp(limit(1)))
  if (p) put(paste0(id, ".p"), pchisq(2 * (top$value - best(0)$value), 1, lower.tail = FALSE))
}
firth_cox <- function(id, f, p = TRUE) {
  y <- response(f)
  fit <- if (ncol(y) == 3) agreg.fit else coxph.fit  # below coxph(), which reads a formula each time
  layer <- as.integer(factor(f$layer))
  there <- coxph.control(iter.max = 0, toler.chol = 1e-13)
  firth(id, ncol(f$X), p = p, loglik = function(b) {
    found <- suppressWarnings(fit(f$X, y, layer, NULL, b, there, NULL, "efron", NULL, FALSE))
    c(found$loglik[1], -as.numeric(determinant(found$var)$modulus))
  })
}
wald <- function(id, f, penalty = FALSE) {
  put_counts(id, f)
  if (penalty) return(firth_cox(id, f))
  fit <- model(f)
  se <- sqrt(diag(vcov(fit)))
  put_effect(id, coef(fit)[[1]], se[[1]])
  put(paste0(id, ".p"), 2 * pnorm(-abs(coef(fit)[[1]] / se[[1]])))
}
restricted_mean <- function(time, event, tau) {
  fit <- survfit(Surv(time, event) ~ 1)
  used <- fit$time <= tau
  t <- c(0, fit$time[used], tau)
  s <- c(1, fit$surv[used])
  area <- diff(t) * s
  d <- fit$n.event[used]
  at_risk <- fit$n.risk[used]
  later <- rev(cumsum(rev(area)))[-1]
  terms <- ifelse(at_risk > d, d / (at_risk * (at_risk - d)), 0)
  c(sum(area), sum(later^2 * terms))
}

methods <- list(
  logrank = function(test) {
    f <- frame_of(test)
    fit <- model(f)
    if (test$penalty) firth_cox(test$id, f, p = FALSE)
    else put_effect(test$id, coef(fit)[[1]], sqrt(vcov(fit)[1, 1]))
    p <- if (is.null(f$person)) pchisq(logrank(f, f$X[, 1]), 1, lower.tail = FALSE)
         else summary(fit)$robscore[["pvalue"]]
    put(paste0(test$id, ".p"), p)
    put_counts(test$id, f)
  },
  cox = function(test) wald(test$id, frame_of(test), test$penalty),
  cause_specific = function(test) wald(test$id, frame_of(test), test$penalty),
  time_dependent = function(test) wald(test$id, frame_of(test), test$penalty),
  spline = function(test) {
    f <- frame_of(test)
    x <- f$X[, 1]
    k <- quantile(x, c(0.05, 0.35, 0.65, 0.95), names = FALSE)
    cube <- function(knot) pmax(x - knot, 0)^3
    term <- function(j) (cube(k[j]) - cube(k[3]) * (k[4] - k[j]) / (k[4] - k[3]) +
                           cube(k[4]) * (k[3] - k[j]) / (k[4] - k[3])) / (k[4] - k[1])^2
    straight <- model(f, f$X[, 1, drop = FALSE])
    curved <- model(f, cbind(x, term(1), term(2)))
    f$X <- f$X[, 1, drop = FALSE]
    if (test$penalty) firth_cox(test$id, f, p = FALSE)
    else put_effect(test$id, coef(straight)[[1]], sqrt(vcov(straight)[1, 1]))
    put(paste0(test$id, ".p"), pchisq(2 * diff(curved$loglik), 3, lower.tail = FALSE))
    put(paste0(test$id, ".nonlinearity.p"),
        pchisq(2 * (curved$loglik[2] - straight$loglik[2]), 2, lower.tail = FALSE))
    put_counts(test$id, f)
  },
  kaplan_meier = function(test) {
    f <- frame_of(test)
    for (side in c("exposed", "reference")) {
      mine <- f$X[, 1] == (side == "exposed")
      y <- response(f)[mine]
      fit <- survfit(y ~ 1)
      below <- fit$surv <= 0.5 + 1e-12
      if (any(below)) put(paste(test$id, side, "median", sep = "."), min(fit$time[below]))
      for (months in c(12, 36, 60)) if (months <= max(f$outcome$time[mine])) {
        put(paste0(test$id, ".", side, ".at_", months), summary(fit, months)$surv)
      }
    }
  },
  schoenfeld = function(test) {
    f <- frame_of(test)
    found <- cox.zph(model(f), transform = "km", terms = FALSE)$table
    put(paste0(test$id, ".p"), found[1, "p"])
    put(paste0(test$id, ".global_p"), found[nrow(found), "p"])
  },
  rmst = function(test) {
    f <- frame_of(test)
    g <- f$X[, 1]
    time <- f$outcome$time
    event <- f$outcome$event == 1
    tau <- min(plan$rmst_months, max(time[g == 0]), max(time[g == 1]))
    one <- restricted_mean(time[g == 1], event[g == 1], tau)
    two <- restricted_mean(time[g == 0], event[g == 0], tau)
    value <- one[1] - two[1]
    se <- sqrt(one[2] + two[2])
    put(paste0(test$id, ".difference"), value)
    put(paste0(test$id, ".lower"), value - qnorm(0.975) * se)
    put(paste0(test$id, ".upper"), value + qnorm(0.975) * se)
    put(paste0(test$id, ".p"), 2 * pnorm(-abs(value / se)))
  },
  concordance = function(test) {
    f <- frame_of(test)
    main <- if (plan$comparison %in% products) 3 else if (plan$comparison == "mediation") 2 else 1
    event <- as.numeric(f$outcome$event == 1)
    for (name in c("with", "without")) {
      X <- if (name == "with") f$X else f$X[, -seq_len(main), drop = FALSE]
      fit <- coxph(Surv(f$outcome$time, event) ~ X)
      put(paste(test$id, name, "harrell", sep = "."), concordance(fit)$concordance)
    }
  },
  recalibration = function(test) {
    f <- frame_of(test)
    found <- observed_risk(f)
    slope <- recalibrated(f)
    log <- log(found$risk / mean(f$X[, 1]))
    if (is.null(f$outcome$event)) {
      put(paste0(test$id, ".intercept"), coef(glm(f$outcome$value ~ 1, binomial, epsilon = 1e-12,
                                                  offset = qlogis(f$X[, 1])))[[1]])
    }
    put_equal(test$id, f, exp(log + c(0, -1, 1) * qnorm(0.975) * found$se / found$risk),
              max(outside(log, found$se / found$risk, log(unlist(plan$calibration$ratio))),
                  outside(slope[1], slope[2], unlist(plan$calibration$slope))))
  },
  calibration_slope = function(test) {
    f <- frame_of(test)
    slope <- recalibrated(f)
    put_equal(test$id, f, slope[1] + c(0, -1, 1) * qnorm(0.975) * slope[2],
              outside(slope[1], slope[2], unlist(plan$calibration$slope)))
  },
  decision_curve = function(test) {
    f <- frame_of(test)
    at <- plan$calibration$threshold
    benefit <- function(treated) {
      risk <- observed_risk(f, treated)$risk
      mean(treated) * (risk - (1 - risk) * at / (1 - at))
    }
    put(paste0(test$id, ".score"), benefit(f$X[, 1] >= at))
    put(paste0(test$id, ".all"), benefit(rep(TRUE, f$n)))
  },
  joint_groups = function(test) {
    f <- frame_of(modifyList(test, list(strata = test$strata)))
    known <- !is.na(parts[[1]]) & !is.na(parts[[2]])
    for (part in outcome_of(rows, test$endpoint)) known <- known & !is.na(part)
    for (key in test$strata) known <- known & !is.na(rows[[key]])
    group <- 2 * parts[[1]][known] + parts[[2]][known]
    outcome <- lapply(outcome_of(rows, test$endpoint), function(x) x[known])
    layer <- if (length(test$strata)) {
      do.call(paste, c(rows[known, test$strata, drop = FALSE], sep = "\r"))
    } else rep("all", sum(known))
    chisq <- logrank(list(outcome = outcome, layer = layer), group)
    put(paste0(test$id, ".p"), pchisq(chisq, 3, lower.tail = FALSE))
  },
  mediation = function(test) {
    f <- frame_of(test)
    X <- f$X
    put_counts(test$id, f)
    hc3 <- function(y, M) {
      fit <- lm(y ~ M)
      W <- model.matrix(fit)
      bread <- solve(crossprod(W))
      weight <- residuals(fit) / (1 - hatvalues(fit))
      se <- sqrt(diag(bread %*% crossprod(W * weight) %*% bread))[2]
      b <- coef(fit)[[2]]
      c(b, 2 * pt(-abs(b / se), df.residual(fit)))
    }
    first <- hc3(X[, 1], X[, -1, drop = FALSE])
    if (is.null(f$outcome$event)) {
      second <- hc3(f$outcome$value, X)
      unit <- sd(f$outcome$value)
    } else {
      # Additive hazards with constant effects (Lin and Ying 1994), in each stratum's risk sets.
      left <- spread <- matrix(0, ncol(X), ncol(X))
      right <- numeric(ncol(X))
      for (layer in unique(f$layer)) {
        mine <- f$layer == layer
        t <- f$outcome$time[mine]
        e <- f$outcome$event[mine] == 1
        Z <- X[mine, , drop = FALSE]
        before <- 0
        for (moment in sort(unique(t))) {
          at_risk <- Z[t >= moment, , drop = FALSE]
          mean <- colMeans(at_risk)
          left <- left + (moment - before) * crossprod(sweep(at_risk, 2, mean))
          off <- sweep(Z[t == moment & e, , drop = FALSE], 2, mean)
          right <- right + colSums(off)
          spread <- spread + crossprod(off)
          before <- moment
        }
      }
      inverse <- solve(left)
      b <- drop(inverse %*% right)[1]
      se <- sqrt((inverse %*% spread %*% inverse)[1, 1])
      second <- c(b, 2 * pnorm(-abs(b / se)))
      unit <- sum(f$outcome$event == 1) / sum(f$outcome$time)
    }
    put(paste0(test$id, ".effect"), first[1] * second[1] / unit)
    put(paste0(test$id, ".p"), max(first[2], second[2]))
  },
  nested = function(test) {
    f <- frame_of(test)
    others <- f$X[, -1, drop = FALSE]
    terms <- if (plan$comparison == "added") f$X[, 1, drop = FALSE] else f$terms
    full <- cbind(terms, others)
    more <- ncol(terms)
    put_counts(test$id, f)
    if (!is.null(f$outcome$event)) {
      fit <- model(f, full)
      base <- if (ncol(others)) model(f, others)$loglik[2] else fit$loglik[1]
      mean <- model(f)
      put_effect(test$id, coef(mean)[[1]], sqrt(vcov(mean)[1, 1]))
      return(put(paste0(test$id, ".p"),
                 pchisq(2 * (fit$loglik[2] - base), more, lower.tail = FALSE)))
    }
    y <- f$outcome$value
    narrow <- if (ncol(others)) y ~ others else y ~ 1
    if (plan$kinds[[test$endpoint]] == "continuous") {
      ols(test, f, p = FALSE)
      found <- anova(lm(narrow), lm(y ~ full))[2, "Pr(>F)"]
    } else {
      fit <- glm(y ~ f$X, family = binomial, epsilon = 1e-12)
      put_effect(test$id, coef(fit)[[2]], sqrt(vcov(fit)[2, 2]))
      wide <- glm(y ~ full, family = binomial, epsilon = 1e-12)
      found <- anova(glm(narrow, family = binomial, epsilon = 1e-12), wide,
                     test = "Chisq")[2, "Pr(>Chi)"]
    }
    put(paste0(test$id, ".p"), found)
  },
  ordered_groups = function(test) {
    f <- frame_of(test)
    put(paste0(test$id, ".p"), pchisq(logrank(f, f$X[, 1], trend = TRUE), 1, lower.tail = FALSE))
    put_counts(test$id, f)
  },
  fine_gray = function(test) {
    f <- frame_of(test)
    if (!is.null(f$outcome$entry)) {  # crr() has no delayed entry, finegray() no error of its weights
      d <- data.frame(f$outcome[c("entry", "time")], state = factor(f$outcome$event, 0:2), X = f$X)
      wide <- finegray(Surv(entry, time, state) ~ ., d, id = seq_len(nrow(d)))
      X <- as.matrix(wide[grepl("^X", names(wide))])
      fit <- coxph(Surv(fgstart, fgstop, fgstatus) ~ X, wide, weights = fgwt, ties = "breslow",
                   control = coxph.control(eps = 1e-12, iter.max = 50))
      return(put(paste0(test$id, ".effect"), exp(coef(fit)[[1]])))
    }
    if (!requireNamespace("cmprsk", quietly = TRUE)) stop("needs the package cmprsk")
    found <- summary(cmprsk::crr(f$outcome$time, f$outcome$event, f$X, gtol = 1e-10,
                                  maxiter = 50))$coef
    put_effect(test$id, found[1, 1], found[1, 3])
    put(paste0(test$id, ".p"), 2 * pnorm(-abs(found[1, 1] / found[1, 3])))
  },
  gray = function(test) {
    f <- frame_of(test)
    if (!requireNamespace("cmprsk", quietly = TRUE)) stop("needs the package cmprsk")
    found <- cmprsk::cuminc(f$outcome$time, f$outcome$event, f$X[, 1], cencode = 0)$Tests
    put(paste0(test$id, ".p"), found["1", "pv"])
  },
  fisher = function(test) {
    f <- frame_of(test)
    found <- fisher.test(table(factor(f$X[, 1], c(1, 0)), factor(f$outcome$value, c(1, 0))))
    put(paste0(test$id, ".p"), found$p.value)
    put(paste0(test$id, ".effect"), found$estimate[[1]])
    put(paste0(test$id, ".lower"), found$conf.int[1])
    put(paste0(test$id, ".upper"), found$conf.int[2])
  },
  logistic = function(test) {
    f <- frame_of(test)
    if (test$penalty) {
      M <- cbind(f$X, 1)
      information <- function(b) {
        p <- plogis(drop(M %*% b))
        crossprod(M, M * (p * (1 - p)))
      }
      b <- firth(test$id, ncol(M), profile = FALSE, loglik = function(b) {
        c(sum(dbinom(f$outcome$value, 1, plogis(drop(M %*% b)), log = TRUE)),
          as.numeric(determinant(information(b))$modulus))
      })
      se <- sqrt(solve(information(b))[1, 1])
      put_effect(test$id, b[1], se)
      return(put(paste0(test$id, ".p"), 2 * pnorm(-abs(b[1] / se))))
    }
    fit <- glm(f$outcome$value ~ f$X, family = binomial, epsilon = 1e-12)
    found <- summary(fit)$coefficients[2, ]
    put_effect(test$id, found[[1]], found[[2]])
    put(paste0(test$id, ".p"), found[[4]])
  },
  linear = function(test) ols(test, frame_of(test)),
  rank = function(test) {
    f <- frame_of(test)
    ols(test, f, p = FALSE)
    y <- f$outcome$value
    found <- wilcox.test(y[f$X[, 1] == 1], y[f$X[, 1] == 0])
    put(paste0(test$id, ".p"), found$p.value)
  }
)
# Least squares on the outcome in standard deviations, with HC3 standard errors.
ols <- function(test, f, p = TRUE) {
  y <- f$outcome$value / sd(f$outcome$value)
  fit <- lm(y ~ f$X)
  M <- model.matrix(fit)
  bread <- solve(crossprod(M))
  weight <- residuals(fit) / (1 - hatvalues(fit))
  se <- sqrt(diag(bread %*% crossprod(M * weight) %*% bread))[2]
  put_effect(test$id, coef(fit)[[2]], se, df.residual(fit), ratio = FALSE)
  if (p) put(paste0(test$id, ".p"), 2 * pt(-abs(coef(fit)[[2]] / se), df.residual(fit)))
}

for (test in plan$tests) {
  if (nzchar(test$skip)) {
    skipped <- c(skipped, paste0(test$id, ": ", test$skip))
    next
  }
  said <- tryCatch({ methods[[test$method]](test); "" }, error = conditionMessage)
  if (nzchar(said)) skipped <- c(skipped, paste0(test$id, ": ", said))
}

# ---- Beside SAGE's numbers.

expected <- read.csv(file.path(here, "expected.csv"), colClasses = c("character", "numeric"))
both <- merge(result, expected, by = "key", suffixes = c(".R", ".SAGE"), sort = FALSE)
both$difference <- abs(both$value.R - both$value.SAGE) / pmax(abs(both$value.SAGE), 1e-8)
# R finds the odds ratio of Fisher's test to four digits, and crr stops that close to its maximum.
coarse <- c("fisher", "fine_gray")
coarse <- unlist(lapply(plan$tests, function(test) if (test$method %in% coarse) test$id))
rough <- sub("[.][^.]*$", "", both$key) %in% coarse
both$agrees <- both$difference < ifelse(rough, 1e-3, 1e-5)
print(format(both, digits = 6), row.names = FALSE)
for (line in skipped) cat("not computed here:", line, "\n")
cat(sprintf("%d of %d numbers agree\n", sum(both$agrees), nrow(both)))
if (!nrow(both) || !all(both$agrees)) quit(status = 1)
